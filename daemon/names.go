package daemon

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"shaper/fleet"
	"shaper/state"
)

// memberNames name the members of this process as no other process does, and give them ledgers of what they have used.
type memberNames struct {
	base    string                  // of all names, which end with a number
	stays   bool                    // base is that of the next process, too
	file    *state.File             // of the process; nil: none
	found   map[string][]fleet.Debt // what file had of the last process, by limit
	kept    map[string]bool         // limits with a window whose debts file keeps
	process string                  // the number of the process, and a random one: other containers have its number, too
	joined  uint64                  // numbers members whose names do not stay
}

// set makes base: of the host, and of the ID of the state file; of the process and a random number if there is none.
func (s *memberNames) set(file *state.File) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := ""
	if file != nil {
		id = file.ID()
	}
	if s.process == "" {
		s.process = fmt.Sprintf("%d-%08x", os.Getpid(), rand.Uint32())
	}
	s.base, s.stays = strings.Map(plain, host)+"-"+cmp.Or(id, s.process), id != ""
	if file != s.file {
		s.file, s.found, s.kept = file, nil, map[string]bool{}
		if file != nil {
			s.found = findDebts(file)
		}
	}
}

// of returns the name under which this process joins limit i of a class, and the ledger of its debts, or nil.
//
// With a state file, a process that was killed comes back under the same name, and has its share at once. If the limit is a
// window, the file says how much of that share was used. For a window, this holds only for the first member that the process
// has. A later one, and every member without a state file, has a random number in its name: then the share of a process that
// was killed is held back until its hold ends.
func (s *memberNames) of(i int, limit *fleet.Class) (name string, ledger fleet.Ledger) {
	of := limit.Name
	if s.stays && (limit.Window == 0 || !s.kept[of]) {
		if limit.Window > 0 {
			s.kept[of], ledger = true, &debts{s.file, of, s.found[of]}
		}
		return fmt.Sprintf("%s-%d", s.base, i+1), ledger
	}
	if s.joined == 0 {
		s.joined = rand.Uint64() >> 16
	}
	s.joined++
	return fmt.Sprintf("%s-%d", s.base, s.joined), nil
}

// plain returns a character that the name of a member may contain.
func plain(c rune) rune {
	if c <= ' ' || c > '~' || c == '{' || c == '}' {
		return '_'
	}
	return c
}
