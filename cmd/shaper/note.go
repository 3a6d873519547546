package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
)

// note records what a command has changed in the kernel: in the history of the daemon if one runs,
// else as a line of a log on the standard error.
func note(c *cli.Context, what string, changes ...policy.Change) {
	if len(changes) == 0 {
		return
	}
	d, err := client(c)
	if err == nil {
		err = d.Note(c.Context, daemon.Noted{What: what, Changes: changes})
	}
	if err == nil {
		return
	}
	log, _ := newLog(c.App.ErrWriter, isJournal(c.App.ErrWriter, os.Getenv("JOURNAL_STREAM")), "text", "info")
	by := fmt.Sprintf("uid=%d pid=%d", os.Getuid(), os.Getpid())
	for _, one := range changes {
		log.Info(what, "by", by, "op", one.Op, "what", one.What, "name", one.Name, "before", one.Old, "after", one.New, "unrecorded", err)
	}
}
