package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completing is the last argument of a command line for which a shell asks for completions.
const completing = "--generate-bash-completion"

// completesFile reports whether a shell asks for completions where the program has none to offer, so that the shell
// offers files: for the value of a flag, behind a "=", which is a word of its own in bash, and after a "--". There,
// urfave/cli would run the command.
func completesFile(app *cli.App, args []string) bool {
	last := len(args) - 1
	if last < 1 || args[last] != completing {
		return false
	}
	words := args[:last]
	if last > 1 && words[last-1] == "-" { // a script adds it if the word being typed begins with it
		words = words[:last-1]
	}
	return slices.Contains(words, "--") || words[len(words)-1] == "=" || lacksValue(words, flagsWithValue(app))
}

// flagsFirst puts flags where urfave/cli looks for them, since it stops at the first argument:
// the flags of the program go before the command, those of a command before its arguments.
// What follows "--" stays in its place.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) == 0 || args[len(args)-1] == completing {
		return args
	}
	withValue := flagsWithValue(app)
	flags, words, rest := flagsAndWords(args[1:], withValue)
	levels := flagLevels(app, words)
	taken := make([][]string, len(levels))
	for _, flag := range flags {
		i := levelOf(flag[0], levels)
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

// flagsAndWords separates flags, each with its value, from words. What follows "--" is rest.
func flagsAndWords(args []string, withValue map[string]bool) (flags [][]string, words, rest []string) {
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

// lacksValue reports whether the last argument looks like a flag whose value is missing. Then
// flagsFirst adds nothing behind it, since that would become its value.
func lacksValue(args []string, withValue map[string]bool) bool {
	last := args[len(args)-1]
	return strings.HasPrefix(last, "-") && withValue[flagName(last)] && !strings.Contains(last, "=") && !slices.Contains(args, "--")
}

// flagName returns the name in an argument such as "--name=value".
func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// flagsWithValue returns the names of all flags that take a value. A name takes a value either in
// all commands or in none.
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

// flagLevels returns the flags of the program, then those of the command that the first word
// names, then those of the subcommand that the next word names, and so on.
func flagLevels(app *cli.App, words []string) (levels [][]cli.Flag) {
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

// levelOf returns the innermost level that has a flag. For --help, which all levels have, and for
// an unknown flag it returns the innermost level of all.
func levelOf(arg string, levels [][]cli.Flag) int {
	help := slices.Contains(cli.HelpFlag.Names(), flagName(arg))
	for i := len(levels) - 1; i >= 0 && !help; i-- {
		if slices.ContainsFunc(levels[i], func(f cli.Flag) bool { return slices.Contains(f.Names(), flagName(arg)) }) {
			return i
		}
	}
	return len(levels) - 1
}
