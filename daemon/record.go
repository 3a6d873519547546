package daemon

import (
	"fmt"
	"strings"
)

// mostLogged bounds the lines that one change writes to the log.
const mostLogged = 100

// logChange logs a change, who made it, and each of its parts, and puts it into the history. The
// caller holds mu.
func (k *keeper) logChange(by caller, r Record, about ...any) {
	k.keep(by, r)
	k.log.Info(r.What, append([]any{"by", by.String(), "changes", len(r.Changes)}, about...)...)
	for i, c := range r.Changes {
		if i == mostLogged {
			k.log.Info("changed", "more", len(r.Changes)-i)
			return
		}
		k.log.Info("changed", "by", by.String(), "op", c.Op, "what", c.What, "name", c.Name, "key", c.Key, "before", c.Old, "after", c.New)
	}
}

// keep puts a record into the history. The caller holds mu.
func (k *keeper) keep(by caller, r Record) {
	r.By, r.After = by.String(), k.current.policy.Hash
	k.history.add(r)
}

// logRejection logs a policy that did not come into force, and each of its mistakes. The caller holds
// mu.
func (k *keeper) logRejection(by caller, err error) {
	k.keep(by, Record{What: "reload rejected", Error: firstLines(err.Error(), mostReported)})
	mistakes := mistakesOf(err)
	if len(mistakes) == 0 {
		k.log.Error("reload rejected; the old policy stays", "by", by.String(), "err", err)
		return
	}
	k.log.Error("reload rejected; the old policy stays", "by", by.String(), "errors", len(mistakes))
	for _, m := range mistakes[:min(len(mistakes), mostLogged)] {
		k.log.Error(m.Error())
	}
}

// mostReported bounds the lines of an error that the status repeats. Whoever asked for the
// reload got all of them.
const mostReported = 10

// firstLines returns at most so many lines of a text, and how many more it has.
func firstLines(text string, most int) string {
	lines := strings.SplitN(text, "\n", most+1)
	if len(lines) <= most {
		return text
	}
	more := 1 + strings.Count(lines[most], "\n")
	return fmt.Sprintf("%s\nand %d more; shaper check shows them", strings.Join(lines[:most], "\n"), more)
}
