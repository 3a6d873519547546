package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"shaper/policy"
)

// mostLogged bounds the lines that one change writes to the log.
const mostLogged = 100

// note puts a change into the history that is not one of the policy in force, and logs it.
func (k *keeper) note(by caller, r Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logChange(by, r)
}

// noteCorrected records how many objects of the kernel the daemon has put right, by device.
func (k *keeper) noteCorrected(objects map[string]int) {
	var changes []policy.Change
	for _, device := range slices.Sorted(maps.Keys(objects)) {
		changes = append(changes, policy.Change{Op: "~", What: "tc", Name: device, Key: "kernel", Old: fmt.Sprintf("differs in %d of its objects", objects[device]), New: "as the policy says"})
	}
	k.note(byWatch, Record{What: kernelCorrected, Changes: changes})
}

// logChange puts a change into the history, and logs it: who made it, its number there, the hash of the policy
// before and after, and each of its parts. The caller holds mu.
func (k *keeper) logChange(by caller, r Record, about ...any) {
	kept := k.keep(by, r)
	k.log.Info(r.What, slices.Concat([]any{"by", by.String(), "changes", len(r.Changes)}, about, kept.where())...)
	for i, c := range r.Changes {
		if i == mostLogged {
			k.log.Info("changed", "more", len(r.Changes)-i, "number", kept.Number)
			return
		}
		k.log.Info("changed", "by", by.String(), "op", c.Op, "what", c.What, "name", c.Name, "key", c.Key, "before", c.Old, "after", c.New, "number", kept.Number)
	}
}

// where returns the place of a record among all, for the log.
func (r Record) where() []any {
	return []any{"number", r.Number, "hash_before", r.Before, "hash_after", r.After}
}

// keep puts a record into the history, and returns it as it is there. The caller holds mu.
func (k *keeper) keep(by caller, r Record) Record {
	r.By, r.After = by.String(), k.current.policy.Hash
	return k.history.add(r)
}

// logRejection logs a policy that did not come into force, and each of its mistakes. The caller holds
// mu.
func (k *keeper) logRejection(by caller, err error) {
	kept := k.keep(by, Record{What: "reload rejected", Error: firstLines(err.Error(), mostReported)})
	mistakes := mistakesOf(err)
	about := []any{"errors", len(mistakes)}
	if len(mistakes) == 0 {
		about = []any{"err", err}
	}
	k.log.Error("reload rejected; the old policy stays", slices.Concat([]any{"by", by.String()}, about, kept.where())...)
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
