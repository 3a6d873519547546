package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

func classesCommand() *cli.Command {
	return &cli.Command{
		Name:         "classes",
		Usage:        "show each class: rate, backlog, waits, losses",
		ArgsUsage:    "[NAME]",
		Description:  "What is shown of a class is of all beneath it together. With NAME it shows everything about one class.",
		Flags:        []cli.Flag{jsonFlag(), sortFlag(), watchFlag()},
		Action:       watched(classes),
		BashComplete: completeClass,
	}
}

func classes(c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	by, name := order(c.String("sort")), c.Args().First()
	if _, err := sorted(classColumns(time.Now()), nil, by); err != nil {
		return err
	}
	return show(c,
		func(d *daemon.Client, c *cli.Context) ([]daemon.Class, error) {
			all, err := d.Classes(c.Context)
			if err != nil || name == "" {
				return all, err
			}
			return theClass(all, name)
		},
		func(w io.Writer, all []daemon.Class) {
			if name != "" {
				printClass(w, all[0], time.Now())
				return
			}
			printClasses(w, all, time.Now(), by)
		})
}

// theClass returns the class of a name alone.
func theClass(all []daemon.Class, name string) ([]daemon.Class, error) {
	i := slices.IndexFunc(all, func(c daemon.Class) bool { return c.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, c := range all {
			names[i] = c.Name
		}
		return nil, usageError("there is no class %q; %s", name, policy.Hint(name, "classes", names))
	}
	return all[i : i+1], nil
}

type classRow = placed[daemon.Class]

// classColumns are what is shown of a class at a moment.
func classColumns(now time.Time) []column[classRow] {
	borrows := func(r classRow) bool { return r.of.Ceil != nil }
	child := func(r classRow) bool { return r.of.Parent != "" }
	keyed := func(r classRow) bool { return r.of.Per != "" }
	messages := func(r classRow) bool { return r.of.Rate.Unit == unit.Messages.String() }
	shadowed := func(r classRow) bool { return r.of.Shadow != nil }
	return []column[classRow]{
		{name: "CLASS", text: func(r classRow) string { return strings.Repeat("  ", r.depth) + r.of.Name }},
		{name: "RATE", text: rateText, by: func(r classRow) float64 { return r.of.Rate.PerSecond }},
		where(borrows, column[classRow]{name: "CEIL",
			text: func(r classRow) string { return r.of.Ceil.Text }, by: func(r classRow) float64 { return r.of.Ceil.PerSecond }}),
		where(child, figure("PRIORITY", func(r classRow) int { return r.of.Priority })),
		where(child, figure("WEIGHT", func(r classRow) int { return r.of.Weight })),
		where(keyed, figure("KEYS", func(r classRow) int { return r.of.Keys })),
		where(messages, figure("IN FLIGHT", func(r classRow) int { return r.of.InFlight })),
		where(messages, column[classRow]{name: "THROTTLED",
			text: func(r classRow) string { return feedback(r.of, now) }, by: func(r classRow) float64 { return float64(throttled(r.of)) }}),
		{name: "NOW", text: func(r classRow) string { return r.of.Now.Text }, by: func(r classRow) float64 { return r.of.Now.PerSecond }},
		{name: "BACKLOG", text: func(r classRow) string { return human(r.of.BacklogBytes) }, by: func(r classRow) float64 { return float64(r.of.BacklogBytes) }},
		figure("ITEMS", func(r classRow) int64 { return r.of.BacklogItems }),
		wait("P50", func(r classRow) stats.Seconds { return r.of.WaitP50 }),
		wait("P99", func(r classRow) stats.Seconds { return r.of.WaitP99 }),
		wait("DRAIN", func(r classRow) stats.Seconds { return r.of.Drain }),
		figure("DROPPED", func(r classRow) uint64 { return allLost(r.of.Dropped) }),
		figure("REFUSED", func(r classRow) uint64 { return allLost(r.of.Refused) }),
		figure("OVERLIMITS", func(r classRow) uint64 { return r.of.Overlimits }),
		where(shadowed, figure("WOULD DELAY", func(r classRow) uint64 { return r.of.Shadow.WouldDelay })),
		where(shadowed, figure("WOULD DROP", func(r classRow) uint64 { return r.of.Shadow.WouldDrop })),
		where(shadowed, wait("WOULD P50", func(r classRow) stats.Seconds { return r.of.Shadow.WaitP50 })),
		where(shadowed, wait("WOULD P99", func(r classRow) stats.Seconds { return r.of.Shadow.WaitP99 })),
	}
}

// rateText marks a rate that `shaper set` has put over the policy file.
func rateText(r classRow) string {
	if r.of.Set {
		return "*" + r.of.Rate.Text
	}
	return r.of.Rate.Text
}

// spareClassColumns are left out first where there is no room for all.
var spareClassColumns = []string{"WEIGHT", "PRIORITY", "DRAIN", "OVERLIMITS", "KEYS", "P50", "WOULD P50", "WOULD DELAY", "IN FLIGHT", "CEIL",
	"BACKLOG", "WOULD P99", "REFUSED", "THROTTLED", "ITEMS", "P99", "WOULD DROP", "DROPPED"}

// printClasses prints each class under its parent, or in an order that there is.
func printClasses(w io.Writer, classes []daemon.Class, now time.Time, by order) {
	columns := classColumns(now)
	rows := asTree(classes, func(c daemon.Class) (name, parent string) { return c.Name, c.Parent })
	if by != "" {
		for i := range rows {
			rows[i].depth = 0
		}
		rows, _ = sorted(columns, rows, by)
	}
	tableOf(columns, rows, spareClassColumns...).write(w, "")
	if slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Parent != "" }) {
		fmt.Fprintln(w, "\nA class has the figures of all beneath it, too.")
	}
	if slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Set }) {
		fmt.Fprintln(w, "\n* by shaper set; shaper status says until when")
	}
}

// printClass prints everything about one class, a line for each thing that it has.
func printClass(w io.Writer, c daemon.Class, now time.Time) {
	t := &table{header: []string{"class", c.Name}}
	line := func(name, value string) {
		if value != "" {
			t.add(name, value)
		}
	}
	line("parent", c.Parent)
	line("algorithm", c.Algorithm)
	line("burst", c.Burst)
	line("window", c.Window)
	line("per", c.Per)
	row := []classRow{{of: c}}
	for _, column := range classColumns(now)[1:] {
		if column.has == nil || column.has(row[0]) {
			line(strings.ToLower(column.name), column.text(row[0]))
		}
	}
	line("sessions", strconv.Itoa(c.Sessions))
	for d := range stats.Directions() {
		v := c.Sent[d]
		line("sent "+d.String(), fmt.Sprintf("%s, %s, %s, %s", human(v.Bytes), plural(v.Packets, "packet"), plural(v.Messages, "message"), plural(v.Connections, "connection")))
	}
	for r := range stats.Reasons() {
		line("dropped, "+r.String(), lossText(c.Dropped[r]))
		line("refused, "+r.String(), lossText(c.Refused[r]))
	}
	for _, signal := range stats.Signals {
		if n := c.Throttled[signal]; n > 0 {
			line("throttled, "+signal, strconv.FormatUint(n, 10))
		}
	}
	t.write(w, "")
}

// lossText prints what was lost; "" for nothing.
func lossText(l stats.LossReading) string {
	if l.Items == 0 {
		return ""
	}
	return plural(l.Items, "item") + ", " + human(l.Bytes)
}

// throttled returns how often the provider has said that a class is too fast.
func throttled(c daemon.Class) (n uint64) {
	for _, count := range c.Throttled {
		n += count
	}
	return n
}

// feedback prints how often that was, and what it makes of the class.
func feedback(c daemon.Class, now time.Time) string {
	text := strconv.FormatUint(throttled(c), 10)
	if pause := c.PausedUntil.Sub(now); !c.PausedUntil.IsZero() && pause > 0 {
		text += ", pauses " + pause.Round(100*time.Millisecond).String()
	}
	if c.Share < 1 {
		text += fmt.Sprintf(", at %.0f %%", 100*c.Share)
	}
	return text
}

func allLost(by map[stats.Reason]stats.LossReading) (n uint64) {
	for _, l := range by {
		n += l.Items
	}
	return n
}
