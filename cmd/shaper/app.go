package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

const description = `shaper stands between programs that send and providers that limit them, and
makes what leaves obey each provider's limit before the provider has to refuse it.

A policy file says who may send how fast, where clients connect, and where that leads. Without
-c it is ./shaper.toml if that exists, else /etc/shaper/shaper.toml. Flags may stand before or after
arguments.`

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}
}

// newApp returns the command line. Nothing of it ends the process.
func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:        "shaper",
		Usage:       "a traffic shaper in front of rate-limited providers",
		UsageText:   "shaper [-c FILE] COMMAND [OPTIONS] [ARGUMENTS]",
		Description: description,
		Version:     version,
		Writer:      stdout,
		ErrWriter:   stderr,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "the policy `FILE`", EnvVars: []string{"SHAPER_CONFIG"}},
			&cli.StringFlag{Name: "socket", Usage: "ask the daemon of this control socket, a `PATH`, without a policy", EnvVars: []string{"SHAPER_SOCKET"}},
			cli.HelpFlag, // left out by urfave/cli where the command is not its own
		},
		Commands: []*cli.Command{
			runCommand(), checkCommand(), reloadCommand(), confirmCommand(), statusCommand(), classesCommand(),
			sessionsCommand(), setCommand(), explainCommand(), simulateCommand(), shadowCommand(), tcCommand(), versionCommand(), completionCommand(), manCommand(), helpCommand(),
		},
		Action:               noCommand,
		ExitErrHandler:       func(*cli.Context, error) {}, // run returns the exit code
		EnableBashCompletion: true,
		// A load has commas of its own.
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true, // there is one of our own
	}
	refuseBadFlags(app)
	return app
}

// refuseBadFlags makes flags that cannot be read the same error everywhere.
func refuseBadFlags(app *cli.App) {
	refuse := func(c *cli.Context, err error, _ bool) error {
		return usageError("%v; see shaper %s--help", err, commandPath(c))
	}
	app.OnUsageError = refuse
	var each func([]*cli.Command)
	each = func(commands []*cli.Command) {
		for _, c := range commands {
			c.OnUsageError = refuse
			c.HideHelpCommand = true
			each(c.Subcommands)
		}
	}
	each(app.Commands)
}

// commandPath returns the words of a command, each followed by a space.
func commandPath(c *cli.Context) (path string) {
	for _, one := range c.Lineage() {
		if one.Command != nil && one.Command.Name != "" && one.Command.Name != one.App.Name {
			path = one.Command.Name + " " + path
		}
	}
	return path
}

// noCommand is what happens without a command, or with one that does not exist.
func noCommand(c *cli.Context) error {
	if name := c.Args().First(); name != "" {
		return usageError("there is no command %q; %s", name, suggest(name, c.App.Commands))
	}
	c.App.Writer = c.App.ErrWriter
	if err := cli.ShowAppHelp(c); err != nil {
		return err
	}
	return errSilent
}

// suggest names the command that was probably meant, or else all of them.
func suggest(name string, commands []*cli.Command) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	// urfave/cli finds something for every word.
	for _, near := range names {
		if near[0] == name[0] && strings.Contains(cli.SuggestCommand(commands, name), strconv.Quote(near)) {
			return fmt.Sprintf("did you mean %q?", near)
		}
	}
	return "the commands are " + strings.Join(names, ", ")
}

// arguments refuses a command line with another number of arguments.
func arguments(c *cli.Context, least, most int) error {
	n := c.NArg()
	if least <= n && n <= most {
		return nil
	}
	form := strings.TrimRight("shaper "+commandPath(c)+c.Command.ArgsUsage, " ")
	if n > most {
		return usageError("%q is one argument too many; usage: %s", c.Args().Get(most), form)
	}
	return usageError("an argument is missing; usage: %s", form)
}

// helpCommand stands for --help. That of urfave/cli is one for the whole
// process, and contains itself once it has run.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show all commands, or one of them",
		ArgsUsage: "[COMMAND]",
		Action: func(c *cli.Context) error {
			app := newApp(c.App.Writer, c.App.ErrWriter)
			return app.RunContext(c.Context, append(append([]string{app.Name}, c.Args().Slice()...), "--help"))
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			v := buildVersion()
			if c.Bool("json") {
				return printJSON(c, v)
			}
			_, err := fmt.Fprintf(c.App.Writer, "shaper %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return err
		},
	}
}
