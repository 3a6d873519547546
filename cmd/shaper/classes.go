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
	"shaper/human"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

func classesCommand() *cli.Command {
	return &cli.Command{
		Name:         "classes",
		Usage:        "show each class: rate, backlog, waits, losses",
		ArgsUsage:    "[NAME]",
		Description:  "The figures of a class include those of all classes beneath it. With NAME it shows everything about one class.",
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
	return ask(c,
		func(d *daemon.Client, c *cli.Context) ([]daemon.Class, error) {
			all, err := d.Classes(c.Context)
			if err != nil || name == "" {
				return all, err
			}
			return onlyClass(all, name)
		},
		func(w io.Writer, all []daemon.Class) {
			if name != "" {
				printClass(w, all[0], time.Now())
				return
			}
			printClasses(w, all, time.Now(), by)
		})
}

// onlyClass returns only the class of a name.
func onlyClass(all []daemon.Class, name string) ([]daemon.Class, error) {
	i := slices.IndexFunc(all, func(c daemon.Class) bool { return c.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, c := range all {
			names[i] = c.Name
		}
		return nil, usageError("%s", policy.NoClass(name, names))
	}
	return all[i : i+1], nil
}

// classRow is a class and its depth in the tree.
type classRow = placed[daemon.Class]

// classColumns returns the columns of a table of classes at the time now.
func classColumns(now time.Time) []column[classRow] {
	borrows := func(r classRow) bool { return r.of.Ceil != nil }
	child := func(r classRow) bool { return r.of.Parent != "" }
	keyed := func(r classRow) bool { return r.of.Per != "" }
	messages := func(r classRow) bool {
		return r.of.Rate.Unit == unit.Messages.String() || r.of.Rate.Unit == unit.Tokens.String()
	}
	shadowed := func(r classRow) bool { return r.of.Shadow != nil }
	waits := func(r classRow) bool { return r.of.BacklogItems > 0 }
	held := func(r classRow) bool { return r.of.WaitsFor != nil }
	return []column[classRow]{
		{name: "CLASS", text: func(r classRow) string { return strings.Repeat("  ", r.depth) + r.of.Name }},
		{name: "RATE", text: rateText, by: func(r classRow) float64 { return r.of.Rate.PerSecond }},
		optional(func(r classRow) bool { return r.of.Schedule != nil },
			column[classRow]{name: "SCHEDULED", text: func(r classRow) string { return scheduleText(r.of.Schedule) }}),
		optional(func(r classRow) bool { return r.of.Shared != "" },
			column[classRow]{name: "SHARED", text: func(r classRow) string { return sharedText(r.of) }}),
		optional(borrows, column[classRow]{name: "CEIL",
			text: func(r classRow) string { return r.of.Ceil.Text }, by: func(r classRow) float64 { return r.of.Ceil.PerSecond }}),
		optional(child, figureColumn("PRIORITY", func(r classRow) int { return r.of.Priority })),
		optional(child, figureColumn("WEIGHT", func(r classRow) int { return r.of.Weight })),
		optional(keyed, figureColumn("KEYS", func(r classRow) int { return r.of.Keys })),
		optional(messages, figureColumn("IN FLIGHT", func(r classRow) int { return r.of.InFlight })),
		optional(messages, column[classRow]{name: "THROTTLED",
			text: func(r classRow) string { return feedback(r.of, now) }, by: func(r classRow) float64 { return float64(throttled(r.of)) }}),
		{name: "NOW", text: func(r classRow) string { return r.of.Now.Text }, by: func(r classRow) float64 { return r.of.Now.PerSecond }},
		{name: "BACKLOG", text: func(r classRow) string { return human.Bytes(r.of.BacklogBytes) }, by: func(r classRow) float64 { return float64(r.of.BacklogBytes) }},
		figureColumn("ITEMS", func(r classRow) int64 { return r.of.BacklogItems }),
		optional(waits, durationColumn("OLDEST", func(r classRow) stats.Seconds { return r.of.Oldest })),
		optional(held, column[classRow]{name: "WAITS FOR", text: func(r classRow) string { return holdText(r.of, now) },
			end: func(r classRow) string { return human.HoldLeft(r.of.WaitsFor, now) }}),
		durationColumn("P50", func(r classRow) stats.Seconds { return r.of.WaitP50 }),
		durationColumn("P99", func(r classRow) stats.Seconds { return r.of.WaitP99 }),
		durationColumn("DRAIN", func(r classRow) stats.Seconds { return r.of.Drain }),
		figureColumn("DROPPED", func(r classRow) uint64 { return itemsLost(r.of.Dropped) }),
		figureColumn("REFUSED", func(r classRow) uint64 { return itemsLost(r.of.Refused) }),
		figureColumn("OVERLIMITS", func(r classRow) uint64 { return r.of.Overlimits }),
		optional(shadowed, figureColumn("WOULD DELAY", func(r classRow) uint64 { return r.of.Shadow.WouldDelay })),
		optional(shadowed, figureColumn("WOULD DROP", func(r classRow) uint64 { return r.of.Shadow.WouldDrop })),
		optional(shadowed, durationColumn("WOULD P50", func(r classRow) stats.Seconds { return r.of.Shadow.WaitP50 })),
		optional(shadowed, durationColumn("WOULD P99", func(r classRow) stats.Seconds { return r.of.Shadow.WaitP99 })),
	}
}

// sharedText returns the fleet that has the budget of a class; if the store is away, also what holds
// instead.
func sharedText(c daemon.Class) string {
	if c.Mode == "store" {
		return c.Shared
	}
	return c.Shared + ": " + c.Mode
}

// scheduleText returns the limit that holds by a schedule, and until when.
func scheduleText(s *daemon.Schedule) string {
	if s.Until.IsZero() {
		return s.Limit
	}
	return s.Limit + " until " + s.Until.Local().Format("Mon 15:04")
}

// holdText returns what the next item of a class waits for, and for how long.
func holdText(c daemon.Class, now time.Time) string {
	text := c.WaitsFor.Words()
	if c.WaitsFor.Class != c.Name {
		text += " of class " + c.WaitsFor.Class
	}
	return text + human.HoldLeft(c.WaitsFor, now)
}

// rateText returns the rate of a class. A "*" marks a class that `shaper set` has changed.
func rateText(r classRow) string {
	if r.of.Set {
		return "*" + r.of.Rate.Text
	}
	return r.of.Rate.Text
}

// spareClassColumns are the columns to omit in this order if there is no room for all.
var spareClassColumns = []string{"WEIGHT", "PRIORITY", "DRAIN", "OVERLIMITS", "KEYS", "P50", "WOULD P50", "WOULD DELAY", "IN FLIGHT", "CEIL",
	"BACKLOG", "WOULD P99", "SCHEDULED", "SHARED", "REFUSED", "THROTTLED", "P99", "OLDEST", "WAITS FOR", "ITEMS", "WOULD DROP", "DROPPED"}

// printClasses prints each class under its parent, or in the order by, which must exist.
func printClasses(w io.Writer, classes []daemon.Class, now time.Time, by order) {
	columns := classColumns(now)
	rows := inTreeOrder(classes, func(c daemon.Class) (name, parent string) { return c.Name, c.Parent })
	if by != "" {
		for i := range rows {
			rows[i].depth = 0
		}
		rows, _ = sorted(columns, rows, by)
	}
	spare := slices.DeleteFunc(slices.Clone(spareClassColumns), by.isBy)
	tableOf(columns, rows, spare...).write(w, "")
	if slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Parent != "" }) {
		fmt.Fprintln(w, "\nThe figures of a class include those of all classes beneath it.")
	}
	if slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Set }) {
		fmt.Fprintln(w, "\n* by shaper set; shaper status says until when")
	}
}

// printClass prints everything about one class, a line for each thing.
func printClass(w io.Writer, c daemon.Class, now time.Time) {
	t := &table{header: []string{"class", c.Name}}
	for _, fact := range classFacts(c, now) {
		t.add(fact[0], fact[1])
	}
	t.write(w, "")
}

// classFacts returns everything about a class, as names and texts.
func classFacts(c daemon.Class, now time.Time) (all [][2]string) {
	line := func(name, value string) {
		if value != "" {
			all = append(all, [2]string{name, value})
		}
	}
	limitLines(line, c)
	row := classRow{of: c}
	for _, column := range classColumns(now)[1:] {
		if column.has == nil || column.has(row) {
			line(strings.ToLower(column.name), column.text(row))
		}
	}
	line("sessions", strconv.Itoa(c.Sessions))
	countLines(line, c)
	return all
}

// limitLines gives line what limits a class.
func limitLines(line func(name, value string), c daemon.Class) {
	line("parent", c.Parent)
	line("algorithm", c.Algorithm)
	line("burst", c.Burst)
	line("window", c.Window)
	if c.Schedule != nil {
		line("at", c.Schedule.At)
	}
	for _, limit := range c.Also {
		line("also", limit)
	}
	if c.Shared != "" {
		line("shared", sharedText(c))
	}
	line("per", c.Per)
}

// countLines gives line what a class has counted.
func countLines(line func(name, value string), c daemon.Class) {
	for d := range stats.Directions() {
		v := c.Sent[d]
		sent := fmt.Sprintf("%s, %s, %s, %s", human.Bytes(v.Bytes), human.Plural(v.Packets, "packet"), human.Plural(v.Messages, "message"), human.Plural(v.Connections, "connection"))
		if v.Tokens > 0 {
			sent += ", " + human.Plural(v.Tokens, "token")
		}
		line("sent "+d.String(), sent)
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
	for _, outcome := range stats.Retries {
		if n := c.Retried[outcome]; n > 0 {
			line("retried, "+outcome, strconv.FormatUint(n, 10))
		}
	}
	for _, fate := range stats.HintFates {
		if n := c.Hinted[fate]; n > 0 {
			line("hints, "+fate, strconv.FormatUint(n, 10))
		}
	}
}

// lossText returns what was lost; "" if nothing was.
func lossText(l stats.LossReading) string {
	if l.Items == 0 {
		return ""
	}
	return human.Plural(l.Items, "item") + ", " + human.Bytes(l.Bytes)
}

// throttled returns how often the provider has said "too fast" to a class.
func throttled(c daemon.Class) (n uint64) {
	for _, count := range c.Throttled {
		n += count
	}
	return n
}

// feedback returns how often that was, and what it does to the class now: a pause, a share of the
// rate.
func feedback(c daemon.Class, now time.Time) string {
	text := strconv.FormatUint(throttled(c), 10)
	if pause := c.PausedUntil.Sub(now); !c.PausedUntil.IsZero() && pause > 0 {
		text += ", pauses " + pause.Round(100*time.Millisecond).String()
	}
	switch {
	case c.Learned > 0 && c.Shadow != nil:
		return text + fmt.Sprintf(", would learn %.4g/s", c.Learned)
	case c.Learned > 0:
		return text + fmt.Sprintf(", learned %.4g/s", c.Learned)
	}
	if c.Share < 1 {
		text += fmt.Sprintf(", at %.0f %%", 100*c.Share)
	}
	return text
}
