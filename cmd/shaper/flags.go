package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/unit"
)

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}
}

// commandPath returns the words of a command, each followed by a space: "sessions close ".
func commandPath(c *cli.Context) (path string) {
	for _, one := range c.Lineage() {
		if one.Command != nil && one.Command.Name != "" && one.Command.Name != one.App.Name {
			path = one.Command.Name + " " + path
		}
	}
	return path
}

// suggest returns a hint: the command that was probably meant, or else all commands.
func suggest(name string, commands []*cli.Command) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	// urfave/cli suggests something for every word, so require the same first letter.
	for _, near := range names {
		if near[0] == name[0] && strings.Contains(cli.SuggestCommand(commands, name), strconv.Quote(near)) {
			return fmt.Sprintf("did you mean %q?", near)
		}
	}
	return "the commands are " + strings.Join(names, ", ")
}

// arguments returns an error if the number of arguments is not from least to most, or if one is empty.
func arguments(c *cli.Context, least, most int) error {
	n := c.NArg()
	isEmpty := slices.Contains(c.Args().Slice(), "")
	if least <= n && n <= most && !isEmpty {
		return nil
	}
	form := strings.TrimRight("shaper "+commandPath(c)+c.Command.ArgsUsage, " ")
	if extra := c.Args().Get(most); strings.HasSuffix(extra, ".toml") {
		return usageError("%q is one argument too many; the policy is -c FILE: shaper %s-c %s", extra, commandPath(c), extra)
	} else if n > most {
		return usageError("%q is one argument too many; usage: %s", extra, form)
	}
	if isEmpty {
		return usageError("an argument is empty; usage: %s", form)
	}
	return usageError("an argument is missing; usage: %s", form)
}

// durationFlag returns the value of a flag, which is written as in a policy file; 0 if it is not
// given.
func durationFlag(c *cli.Context, name string) (time.Duration, error) {
	if !c.IsSet(name) {
		return 0, nil
	}
	d, err := unit.ParseDuration(c.String(name))
	if err != nil {
		return 0, usageError("--%s: %v", name, err)
	}
	if d <= 0 {
		return 0, usageError("--%s: %q leaves no time", name, c.String(name))
	}
	return time.Duration(d), nil
}

// noSubcommand handles a command without one of its subcommands, or with one that does not exist.
func noSubcommand(command, all string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return usageError("there is no command %q; %s", command+" "+name, suggest(name, c.Command.Subcommands))
		}
		return usageError("a command is missing; shaper %s %s", command, all)
	}
}
