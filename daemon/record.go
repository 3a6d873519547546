package daemon

import "shaper/policy"

// mostLogged bounds the lines that one change writes to the log.
const mostLogged = 100

// logChange logs a change, who made it, and each of its parts.
func (k *keeper) logChange(by caller, what string, changes []policy.Change, about ...any) {
	k.log.Info(what, append([]any{"by", by.String(), "changes", len(changes)}, about...)...)
	for i, c := range changes {
		if i == mostLogged {
			k.log.Info("changed", "more", len(changes)-i)
			return
		}
		k.log.Info("changed", "by", by.String(), "op", c.Op, "what", c.What, "name", c.Name, "key", c.Key, "before", c.Old, "after", c.New)
	}
}

// logRejection logs a policy that did not come into force, and each of its mistakes.
func (k *keeper) logRejection(by caller, err error) {
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
