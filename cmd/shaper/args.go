package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completing is the last argument when a shell asks for completions.
const completing = "--generate-bash-completion"

// flagsFirst puts flags where urfave/cli looks for them, which stops at the
// first argument: those of the program before the command, those of a command
// before its arguments. What stands behind "--" stays.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) == 0 || args[len(args)-1] == completing {
		return args
	}
	withValue := flagsWithValue(app)
	flags, words, rest := split(args[1:], withValue)
	levels := descend(app, words)
	taken := make([][]string, len(levels))
	for _, flag := range flags {
		i := ownerOf(flag[0], levels)
		taken[i] = append(taken[i], flag...)
	}
	out := args[:1:1]
	for i := range levels {
		if i > 0 {
			out = append(out, words[i-1])
		}
		out = append(out, taken[i]...)
	}
	if tail := append(words[len(levels)-1:], rest...); len(tail) > 0 && !lacksValue(args, withValue) {
		out = append(append(out, "--"), tail...)
	}
	return out
}

// split tells flags, each with its value, from words. What follows "--" is
// rest.
func split(args []string, withValue map[string]bool) (flags [][]string, words, rest []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return flags, words, args[i+1:]
		case len(a) < 2 || a[0] != '-':
			words = append(words, a)
		case withValue[flagName(a)] && !strings.Contains(a, "=") && i+1 < len(args):
			flags = append(flags, args[i:i+2])
			i++
		default:
			flags = append(flags, args[i:i+1])
		}
	}
	return flags, words, nil
}

// lacksValue reports whether the last argument is a flag whose value is
// missing: then nothing may stand behind it, or that would be taken for it.
func lacksValue(args []string, withValue map[string]bool) bool {
	last := args[len(args)-1]
	return strings.HasPrefix(last, "-") && withValue[flagName(last)] && !strings.Contains(last, "=") && !slices.Contains(args, "--")
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// flagsWithValue returns the names of all flags that take a value. No name
// takes one in one command and none in another.
func flagsWithValue(app *cli.App) map[string]bool {
	names := map[string]bool{}
	note := func(flags []cli.Flag) {
		for _, f := range flags {
			if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
				for _, name := range f.Names() {
					names[name] = true
				}
			}
		}
	}
	note(app.Flags)
	var each func([]*cli.Command)
	each = func(commands []*cli.Command) {
		for _, c := range commands {
			note(c.Flags)
			each(c.Subcommands)
		}
	}
	each(app.Commands)
	return names
}

// descend follows the words as far as they are commands, and returns the flags
// of the program and of each command.
func descend(app *cli.App, words []string) (levels [][]cli.Flag) {
	levels = [][]cli.Flag{app.Flags}
	commands := app.Commands
	for _, word := range words {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 {
			break
		}
		levels = append(levels, commands[i].Flags)
		commands = commands[i].Subcommands
	}
	return levels
}

// ownerOf returns the innermost level that has a flag. All of them have --help,
// and one that nobody has is for the innermost to refuse.
func ownerOf(arg string, levels [][]cli.Flag) int {
	help := slices.Contains(cli.HelpFlag.Names(), flagName(arg))
	for i := len(levels) - 1; i >= 0 && !help; i-- {
		if slices.ContainsFunc(levels[i], func(f cli.Flag) bool { return slices.Contains(f.Names(), flagName(arg)) }) {
			return i
		}
	}
	return len(levels) - 1
}
