package main

import (
	"encoding/json"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/stats"
)

func printJSON(c *cli.Context, v any) error {
	out := json.NewEncoder(c.App.Writer)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

func timestamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// itemsLost returns how many items were lost for any reason.
func itemsLost(by map[stats.Reason]stats.LossReading) (n uint64) {
	for _, l := range by {
		n += l.Items
	}
	return n
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
