package policy

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// Quiet is a section [[class.NAME.quiet]]: hours in which nothing leaves to some recipients, from
// the class and from those beneath it.
type Quiet struct {
	Recipient []Pattern `json:"recipient,omitempty"` // numbers, or beginnings of them like "91*"; none: all
	Hours
}

// String prints "to 91*, 92* from 21:00 to 09:00 in Asia/Kolkata".
func (q Quiet) String() string {
	if len(q.Recipient) == 0 {
		return "to all " + q.Hours.String()
	}
	return "to " + list(q.Recipient) + " " + q.Hours.String()
}

// patterns returns the recipients; all of them are "*".
func (q *Quiet) patterns() []Pattern {
	if len(q.Recipient) == 0 {
		return []Pattern{everybody}
	}
	return q.Recipient
}

const everybody = Pattern("*")

// A QuietGroup is the recipients of a class that have the same quiet hours.
type QuietGroup struct {
	Recipients []Pattern
	Hours      []Hours // in which nothing leaves to them
	// Closed is the present or the next time of quiet hours. Only a class that Scheduled returns has
	// it.
	Closed Span
}

// Text names the recipients for people: "91*, 92*", or "all recipients".
func (g *QuietGroup) Text() string {
	if g.Recipients[0] == everybody {
		return "all recipients"
	}
	return few(g.Recipients)
}

// QuietGroups are all groups of a class. A recipient belongs to the group that has the most
// specific pattern of those that match.
type QuietGroups []QuietGroup

// newQuietGroups returns the groups of some sections. A pattern has the hours of each section that
// has all recipients that the pattern matches.
func newQuietGroups(sections []Quiet) (groups QuietGroups) {
	seen := map[Pattern]bool{}
	for i := range sections {
		for _, p := range sections[i].patterns() {
			if seen[p] {
				continue
			}
			seen[p] = true
			groups.add(p, hoursFor(p, sections))
		}
	}
	return groups
}

// hoursFor returns the hours of all sections that have everything that a pattern matches.
func hoursFor(p Pattern, sections []Quiet) (all []Hours) {
	for i := range sections {
		if slices.ContainsFunc(sections[i].patterns(), func(q Pattern) bool { return q.includes(p) }) {
			all = append(all, sections[i].Hours)
		}
	}
	return all
}

// includes reports whether all recipients that another pattern matches match this one, too.
func (p Pattern) includes(o Pattern) bool {
	text, isPrefix := strings.CutSuffix(string(p), "*")
	return p == o || isPrefix && strings.HasPrefix(strings.TrimSuffix(string(o), "*"), text)
}

// isOf reports whether the pattern matches a recipient: it is the number, or the beginning of a longer
// one.
func (p Pattern) isOf(recipient []byte) bool {
	text, isPrefix := strings.CutSuffix(string(p), "*")
	return string(recipient) == text || isPrefix && len(recipient) > len(text) && string(recipient[:len(text)]) == text
}

// add adds a pattern to the group that has the same hours.
func (g *QuietGroups) add(p Pattern, hours []Hours) {
	i := slices.IndexFunc(*g, func(one QuietGroup) bool { return reflect.DeepEqual(one.Hours, hours) })
	if i < 0 {
		i, *g = len(*g), append(*g, QuietGroup{Hours: hours})
	}
	(*g)[i].Recipients = append((*g)[i].Recipients, p)
}

// Of returns the number of the group of a recipient; -1 if it has no quiet hours. It does not
// allocate.
func (g QuietGroups) Of(recipient []byte) (group int) {
	group, best := -1, Pattern("")
	for i := range g {
		for _, p := range g[i].Recipients {
			if (group < 0 || best.includes(p)) && p.isOf(recipient) {
				group, best = i, p
			}
		}
	}
	return group
}

// ByRecipient reports whether the recipient of a message tells its group.
func (g QuietGroups) ByRecipient() bool {
	return slices.ContainsFunc(g, func(one QuietGroup) bool { return !slices.Equal(one.Recipients, []Pattern{everybody}) })
}

// at returns the groups as they are from t on, and when that changes; zero if it does not.
func (g QuietGroups) at(t time.Time) (now QuietGroups, until time.Time) {
	now = slices.Clone(g)
	for i := range now {
		change := now[i].close(t)
		until = sooner(until, change)
	}
	return now, until
}

// close sets Closed for t, and returns when it has to be set again; zero for never.
func (g *QuietGroup) close(t time.Time) time.Time {
	changeAfter := func(t time.Time) time.Time {
		now := g.isQuiet(t)
		return nextChange(g.Hours, t, func(at time.Time) bool { return g.isQuiet(at) != now })
	}
	change := changeAfter(t)
	g.Closed = Span{Until: change}
	if !g.isQuiet(t) {
		g.Closed = Span{change, changeAfter(change)}
	}
	if g.Closed.Until.IsZero() {
		g.Closed.Until = never
	}
	return change
}

// isQuiet reports whether t is in the hours.
func (g *QuietGroup) isQuiet(t time.Time) bool {
	return slices.ContainsFunc(g.Hours, func(h Hours) bool { return h.holds(t) })
}
