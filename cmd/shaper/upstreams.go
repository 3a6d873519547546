package main

import (
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/human"
)

func upstreamsCommand() *cli.Command {
	return &cli.Command{
		Name:   "upstreams",
		Usage:  "show the addresses of the upstreams, and which of them are up",
		Flags:  []cli.Flag{jsonFlag(), sortFlag(), watchFlag()},
		Action: watched(listed(upstreamColumns, (*daemon.Client).Upstreams, printUpstreams)),
	}
}

// upstreamColumns returns the columns of a table of upstreams at the time now.
func upstreamColumns(now time.Time) []column[daemon.Upstream] {
	type of = daemon.Upstream
	return []column[of]{
		{name: "LISTENER", text: func(u of) string { return u.Listener }},
		{name: "UPSTREAM", text: func(u of) string { return u.Upstream }},
		{name: "ADDRESS", text: func(u of) string { return orDash(u.Address) }},
		{name: "TTL", text: ttlOf, by: ttlSeconds, has: func(u of) bool { return u.TTL != nil }},
		{name: "WEIGHT", text: func(u of) string { return strconv.Itoa(u.Weight) }, by: func(u of) float64 { return float64(u.Weight) }, has: func(u of) bool { return u.Weight != 1 }},
		{name: "STATE", text: func(u of) string { return u.State }},
		{name: "SINCE", text: func(u of) string { return sinceOf(u, now) }, has: func(u of) bool { return !u.Since.IsZero() }},
		figureColumn("SESSIONS", func(u of) int64 { return u.Sessions }),
		figureColumn("IN FLIGHT", func(u of) int64 { return u.InFlight }),
		figureColumn("FAILURES", func(u of) uint64 { return u.Failures }),
		{name: "LAST FAILURE", text: func(u of) string { return orDash(u.Error) }, has: func(u of) bool { return u.Error != "" }},
	}
}

// printUpstreams prints the upstreams in the order by, which must exist.
func printUpstreams(w io.Writer, upstreams []daemon.Upstream, now time.Time, by order) {
	columns := upstreamColumns(now)
	upstreams, _ = sorted(columns, upstreams, by)
	tableOf(columns, upstreams, "LAST FAILURE", "IN FLIGHT", "SINCE", "WEIGHT", "TTL").write(w, "")
}

func ttlSeconds(u daemon.Upstream) float64 {
	if u.TTL == nil {
		return 0
	}
	return time.Duration(*u.TTL).Seconds()
}

// ttlOf returns how long an address still holds; "-" if it does not come from a name.
func ttlOf(u daemon.Upstream) string {
	if u.TTL == nil {
		return "-"
	}
	return strconv.FormatFloat(ttlSeconds(u), 'f', 0, 64) + "s"
}

// sinceOf returns for how long the state has lasted; "-" if it has never changed.
func sinceOf(u daemon.Upstream, now time.Time) string {
	if u.Since.IsZero() {
		return "-"
	}
	return human.Elapsed(u.Since, now)
}
