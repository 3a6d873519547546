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
	"shaper/stats"
	"shaper/unit"
)

// reader returns a command that asks the daemon for something and prints it.
func reader[T any](name, usage string, get func(*daemon.Client, *cli.Context) (T, error), print func(io.Writer, T)) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, Flags: []cli.Flag{jsonFlag()}, Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		return show(c, get, print)
	}}
}

func show[T any](c *cli.Context, get func(*daemon.Client, *cli.Context) (T, error), print func(io.Writer, T)) error {
	d, err := client(c)
	if err != nil {
		return err
	}
	v, err := get(d, c)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, v)
	}
	print(c.App.Writer, v)
	return nil
}

func statusCommand() *cli.Command {
	return reader("status", "show the daemon: up since, policy, last reload, totals",
		func(d *daemon.Client, c *cli.Context) (daemon.Status, error) { return d.Status(c.Context) },
		func(w io.Writer, s daemon.Status) { printStatus(w, s, time.Now()) })
}

func printStatus(w io.Writer, s daemon.Status, now time.Time) {
	fmt.Fprintf(w, "shaper %s, %s, pid %d, up %s since %s\n\n", s.Version, s.State, s.PID, ago(s.Started, now), stamp(s.Started))
	fmt.Fprintf(w, "policy    %s  %s\n", s.Policy, s.PolicyHash)
	printReload(w, s, now)
	fmt.Fprintf(w, "control   %s\n", s.Control)
	if s.HTTP != "" {
		fmt.Fprintf(w, "metrics   http://%s/metrics\n", s.HTTP)
	}
	up, down := s.Totals.Sent[stats.Upstream], s.Totals.Sent[stats.Downstream]
	fmt.Fprintf(w, "sessions  %d open, %d ended\n", s.Totals.Sessions, s.Totals.Ended)
	fmt.Fprintf(w, "sent      %s to upstreams, %s to clients\n", human(up.Bytes), human(down.Bytes))
	fmt.Fprintf(w, "backlog   %s, %s\n", plural(s.Totals.BacklogItems, "item"), human(s.Totals.BacklogBytes))
	fmt.Fprintf(w, "dropped   %s, %s\n", plural(s.Totals.Dropped.Items, "item"), human(s.Totals.Dropped.Bytes))
	fmt.Fprintf(w, "refused   %s, %s\n\n", plural(s.Totals.Refused.Items, "item"), human(s.Totals.Refused.Bytes))
	t := table{header: []string{"LISTENER", "WHERE", ">OPEN", ">OK", ">FAILED"}}
	for _, l := range s.Listeners {
		ok := l.Ended[stats.OK]
		var all uint64
		for _, n := range l.Ended {
			all += n
		}
		t.add(l.Name, l.Protocol+" "+strings.Join(l.Addresses, ", "), strconv.FormatInt(l.Open, 10), fmt.Sprint(ok), fmt.Sprint(all-ok))
	}
	t.write(w, "")
}

// printReload prints how the last reload went, and what is not as in the file.
func printReload(w io.Writer, s daemon.Status, now time.Time) {
	if s.Reload.OK {
		fmt.Fprintf(w, "loaded    %s ago, %s\n", ago(s.Reload.Succeeded, now), stamp(s.Reload.Succeeded))
	} else {
		fmt.Fprintf(w, "loaded    %s ago; the LAST RELOAD FAILED %s ago:\n", ago(s.Reload.Succeeded, now), ago(s.Reload.Time, now))
		for line := range strings.Lines(s.Reload.Error + "\n") {
			fmt.Fprintf(w, "          %s", line)
		}
	}
	if !s.Rollback.IsZero() {
		fmt.Fprintf(w, "rollback  in %s, unless `shaper confirm` comes first\n", ago(now, s.Rollback))
	}
	for _, set := range s.Sets {
		until := "until the next reload"
		if !set.Until.IsZero() {
			until = "for another " + ago(now, set.Until)
		}
		fmt.Fprintf(w, "set       %s: %s, %s\n", set.Class, assignments(set.Values), until)
	}
	if n := len(s.Warnings); n > 0 {
		fmt.Fprintf(w, "warnings  %d; see shaper check\n", n)
	}
}

// ago prints how long a is before b.
func ago(a, b time.Time) string {
	d := max(b.Sub(a), 0)
	if days := int(d / (24 * time.Hour)); days > 0 {
		return fmt.Sprintf("%dd%dh", days, int(d/time.Hour)%24)
	}
	return withoutZeroSeconds(d.Round(time.Second).String())
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func classesCommand() *cli.Command {
	return reader("classes", "show each class: rate, backlog, waits, losses",
		func(d *daemon.Client, c *cli.Context) ([]daemon.Class, error) { return d.Classes(c.Context) },
		printClasses)
}

// printClasses prints each class under its parent. Where there are trees, it also
// prints what siblings share by.
func printClasses(w io.Writer, classes []daemon.Class) {
	t := table{header: []string{"CLASS", ">RATE", ">CEIL", ">PRIORITY", ">WEIGHT", ">KEYS", ">IN FLIGHT", ">THROTTLED", ">NOW", ">BACKLOG", ">ITEMS", ">P50", ">P99", ">DRAIN", ">DROPPED", ">REFUSED", ">OVERLIMITS", ">WOULD DELAY", ">WOULD DROP", ">WOULD P50", ">WOULD P99"}}
	changed := false
	for _, placed := range asTree(classes, func(c daemon.Class) (name, parent string) { return c.Name, c.Parent }) {
		c := placed.of
		rate := c.Rate.Text
		if c.Set {
			rate, changed = "*"+rate, true
		}
		ceil, priority, weight, keys := "-", "-", "-", "-"
		if c.Ceil != nil {
			ceil = c.Ceil.Text
		}
		if c.Parent != "" {
			priority, weight = strconv.Itoa(c.Priority), strconv.Itoa(c.Weight)
		}
		if c.Per != "" {
			keys = strconv.Itoa(c.Keys)
		}
		inFlight, throttled := "-", "-"
		if c.Rate.Unit == unit.Messages.String() {
			inFlight, throttled = strconv.Itoa(c.InFlight), feedback(c, time.Now())
		}
		would := []string{"-", "-", "-", "-"}
		if s := c.Shadow; s != nil {
			would = []string{fmt.Sprint(s.WouldDelay), fmt.Sprint(s.WouldDrop), duration(s.WaitP50), duration(s.WaitP99)}
		}
		t.add(append([]string{strings.Repeat("  ", placed.depth) + c.Name, rate, ceil, priority, weight, keys, inFlight, throttled, c.Now.Text, human(c.BacklogBytes), strconv.FormatInt(c.BacklogItems, 10),
			duration(c.WaitP50), duration(c.WaitP99), duration(c.Drain), lost(c.Dropped), lost(c.Refused), fmt.Sprint(c.Overlimits)}, would...)...)
	}
	if !slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Parent != "" }) {
		t.drop("CEIL", "PRIORITY", "WEIGHT")
	}
	if !slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Per != "" }) {
		t.drop("KEYS")
	}
	if !slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Rate.Unit == unit.Messages.String() }) {
		t.drop("IN FLIGHT", "THROTTLED")
	}
	if !slices.ContainsFunc(classes, func(c daemon.Class) bool { return c.Shadow != nil }) {
		t.drop("WOULD DELAY", "WOULD DROP", "WOULD P50", "WOULD P99")
	}
	t.write(w, "")
	if changed {
		fmt.Fprintln(w, "\n* by shaper set; shaper status says until when")
	}
}

// feedback prints how often the provider has said that a class is too fast, and what
// that makes of it.
func feedback(c daemon.Class, now time.Time) string {
	n := uint64(0)
	for _, count := range c.Throttled {
		n += count
	}
	text := strconv.FormatUint(n, 10)
	if pause := c.PausedUntil.Sub(now); !c.PausedUntil.IsZero() && pause > 0 {
		text += ", pauses " + pause.Round(100*time.Millisecond).String()
	}
	if c.Share < 1 {
		text += fmt.Sprintf(", at %.0f %%", 100*c.Share)
	}
	return text
}

// placed is a class with the number of classes above it.
type placed[T any] struct {
	of    T
	depth int
}

// asTree returns the classes in the order of a tree: each behind its parent.
func asTree[T any](classes []T, names func(T) (name, parent string)) (all []placed[T]) {
	under, known := map[string][]T{}, map[string]bool{}
	for _, c := range classes {
		name, _ := names(c)
		known[name] = true
	}
	for _, c := range classes {
		_, parent := names(c)
		if !known[parent] { // as when it has been changed while the classes were read
			parent = ""
		}
		under[parent] = append(under[parent], c)
	}
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for _, c := range under[parent] {
			all = append(all, placed[T]{c, depth})
			name, _ := names(c)
			walk(name, depth+1)
		}
	}
	walk("", 0)
	return all
}

func lost(by map[stats.Reason]stats.LossReading) string { return fmt.Sprint(allLost(by)) }

func allLost(by map[stats.Reason]stats.LossReading) (n uint64) {
	for _, l := range by {
		n += l.Items
	}
	return n
}

func sessionsCommand() *cli.Command {
	c := reader("sessions", "show the open sessions",
		func(d *daemon.Client, c *cli.Context) ([]daemon.Session, error) { return d.Sessions(c.Context) },
		func(w io.Writer, all []daemon.Session) { printSessions(w, all, time.Now()) })
	c.Subcommands = []*cli.Command{closeCommand()}
	return c
}

func printSessions(w io.Writer, sessions []daemon.Session, now time.Time) {
	t := table{header: []string{">ID", "CLIENT", "LISTENER", "UPSTREAM", "CLASS", ">UP", ">DOWN", ">WAITING", ">AGE", "TLS"}}
	for _, s := range sessions {
		class := s.Class
		if s.ReturnClass != "" {
			class += "/" + s.ReturnClass
		}
		t.add(strconv.FormatUint(s.ID, 10), s.Client, s.Listener, orDash(s.Upstream), orDash(class),
			human(s.Upward), human(s.Downward), human(s.Waiting), ago(s.Started, now), tlsOf(s))
	}
	if !slices.ContainsFunc(sessions, func(s daemon.Session) bool { return tlsOf(s) != "-" }) {
		t.drop("TLS")
	}
	t.write(w, "")
}

// tlsOf prints which TLS a session has: "client 1.3, upstream 1.2".
func tlsOf(s daemon.Session) string {
	var sides []string
	if s.ClientTLS != "" {
		sides = append(sides, "client "+s.ClientTLS)
	}
	if s.UpstreamTLS != "" {
		sides = append(sides, "upstream "+s.UpstreamTLS)
	}
	return orDash(strings.Join(sides, ", "))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
