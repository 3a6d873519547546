package daemon

import (
	"slices"
	"strconv"
	"strings"

	"shaper/stats"
)

// shapersOf returns the processes of a fleet, by what its classes know of their peers.
func shapersOf(f *stats.FleetReading) (all []stats.ShaperReading) {
	shortest, longest := f.Deadlines()
	for _, c := range f.Classes {
		this := shaperName(c.Member)
		for _, p := range c.Peers {
			name := shaperName(p.Name)
			i := slices.IndexFunc(all, func(r stats.ShaperReading) bool { return r.Name == name })
			if i < 0 {
				i = len(all)
				all = append(all, stats.ShaperReading{Name: name, Seen: p.Seen, Share: p.Share, State: stateOf(name, this)})
			}
			of := &all[i]
			of.Age, of.Seen, of.Share = max(of.Age, p.Age), min(of.Seen, p.Seen), min(of.Share, p.Share)
			of.Budgets++
			if shortest < longest {
				of.Deadline = p.Deadline
			}
			if p.Silent && name != "" {
				of.State = stats.Silent
			}
		}
	}
	slices.SortFunc(all, func(a, b stats.ShaperReading) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// stateOf returns the state of a process that is not silent.
func stateOf(name, this string) string {
	switch name {
	case "":
		return stats.HeldBack
	case this:
		return stats.ThisOne
	}
	return stats.Here
}

// shaperName returns the name of a process: that of a member without the number that tells its budgets apart.
func shaperName(member string) string {
	if end := strings.LastIndexByte(member, '-'); end > 0 {
		if _, err := strconv.ParseUint(member[end+1:], 10, 64); err == nil {
			return member[:end]
		}
	}
	return member
}
