package main

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/human"
)

func sessionsCommand() *cli.Command {
	return &cli.Command{
		Name:        "sessions",
		Usage:       "show the open sessions",
		Flags:       []cli.Flag{jsonFlag(), sortFlag(), watchFlag()},
		Subcommands: []*cli.Command{closeCommand()},
		Action:      watched(listed(sessionColumns, (*daemon.Client).Sessions, printSessions)),
	}
}

// sessionColumns returns the columns of a table of sessions at the time now.
func sessionColumns(now time.Time) []column[daemon.Session] {
	type of = daemon.Session
	return []column[of]{
		{name: "ID", text: func(s of) string { return strconv.FormatUint(s.ID, 10) }, by: func(s of) float64 { return -float64(s.ID) }},
		{name: "CLIENT", text: func(s of) string { return s.Client }},
		{name: "LISTENER", text: func(s of) string { return s.Listener }},
		{name: "UPSTREAM", text: func(s of) string { return orDash(s.Upstream) }},
		{name: "NO", text: numberOf, by: func(s of) float64 { return float64(s.UpstreamNumber) }, has: func(s of) bool { return s.UpstreamNumber > 1 }},
		{name: "BIND", text: func(s of) string { return orDash(s.Bind) }, has: func(s of) bool { return s.Bind != "" }},
		{name: "CLASS", text: classesOfSession},
		{name: "UP", text: func(s of) string { return human.Bytes(s.Upward) }, by: func(s of) float64 { return float64(s.Upward) }},
		{name: "DOWN", text: func(s of) string { return human.Bytes(s.Downward) }, by: func(s of) float64 { return float64(s.Downward) }},
		{name: "WAITING", text: func(s of) string { return human.Bytes(s.Waiting) }, by: func(s of) float64 { return float64(s.Waiting) }},
		{name: "AGE", text: func(s of) string { return human.Elapsed(s.Started, now) }, by: func(s of) float64 { return now.Sub(s.Started).Seconds() }},
		{name: "TLS", text: tlsOf, has: func(s of) bool { return tlsOf(s) != "-" }},
	}
}

// printSessions prints the sessions in the order by, which must exist.
func printSessions(w io.Writer, sessions []daemon.Session, now time.Time, by order) {
	columns := sessionColumns(now)
	sessions, _ = sorted(columns, sessions, by)
	tableOf(columns, sessions, "BIND", "TLS", "LISTENER", "AGE", "WAITING", "ID").write(w, "")
}

// classesOfSession returns the class of a session, and after a slash its return class if it has
// one.
func classesOfSession(s daemon.Session) string {
	if s.ReturnClass != "" {
		return s.Class + "/" + s.ReturnClass
	}
	return orDash(s.Class)
}

// numberOf returns which upstream of the listener a session has reached, counted from 1; "-" if
// none.
func numberOf(s daemon.Session) string {
	if s.UpstreamNumber == 0 {
		return "-"
	}
	return strconv.Itoa(s.UpstreamNumber)
}

// tlsOf returns the TLS versions of a session: "client 1.3, upstream 1.2"; "-" if it has none.
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

func closeCommand() *cli.Command {
	return &cli.Command{
		Name:      "close",
		Usage:     "reset a session",
		ArgsUsage: "ID",
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1); err != nil {
				return err
			}
			id, err := strconv.ParseUint(c.Args().First(), 10, 64)
			if err != nil {
				return usageError("%q is not the id of a session; shaper sessions shows them", c.Args().First())
			}
			d, err := client(c)
			if err != nil {
				return err
			}
			return d.CloseSession(c.Context, id)
		},
	}
}
