package main

import (
	"io"

	"github.com/urfave/cli/v2"
)

const description = `shaper stands between programs that send and providers that limit them, and
makes what leaves obey each provider's limit before the provider has to refuse it.

A policy file says who may send how fast, where clients connect, and which upstreams they reach. Without
-c it is ./shaper.toml if that exists, else /etc/shaper/shaper.toml. Flags may stand before or after
arguments.`

// newApp returns the command line. It never ends the process.
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
			cli.HelpFlag, // urfave/cli omits it if the help command is not its own
		},
		Commands: []*cli.Command{
			runCommand(), checkCommand(), reloadCommand(), confirmCommand(), statusCommand(), classesCommand(),
			topCommand(), whyCommand(), sessionsCommand(), upstreamsCommand(), fleetCommand(), setCommand(), historyCommand(), diffCommand(), explainCommand(), simulateCommand(), shadowCommand(), fmtCommand(), schemaCommand(), tcCommand(), nftCommand(), versionCommand(), completionCommand(), manCommand(), helpCommand(),
		},
		Action:               noCommand,
		ExitErrHandler:       func(*cli.Context, error) {}, // run returns the exit code
		EnableBashCompletion: true,
		// The value of --load contains commas.
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true, // helpCommand takes its place
	}
	refuseBadFlags(app)
	return app
}

// refuseBadFlags makes a flag that cannot be read the same error in every command.
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

// noCommand handles a command line without a command, or with one that does not exist.
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

// helpCommand does what --help does. The help command of urfave/cli is a global variable, and
// contains itself once it has run.
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
