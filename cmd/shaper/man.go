package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// manRest is the rest of the manual page, after the commands.
const manRest = `
.SH JSON
With \-\-json, commands print JSON for programs. Within a major version fields are only added: none is renamed, removed, or given another type. A field without a value may be missing. Texts for people, and tables, may change in any version.
.SH EXIT STATUS
.TP
\fB0\fP
Done.
.TP
\fB1\fP
Failed.
.TP
\fB64\fP
The command line makes no sense.
.TP
\fB65\fP
The policy, a value for it, or a trace is rejected. Each mistake is one line on the standard error: FILE:LINE:COLUMN: key: what is wrong; what is allowed.
.TP
\fB66\fP
The policy file or another file cannot be opened.
.TP
\fB69\fP
No daemon answers on the control socket.
.TP
\fB77\fP
A capability or a permission is missing.
.SH ENVIRONMENT
.TP
\fBSHAPER_CONFIG\fP
The policy file, if \-c does not name one.
.TP
\fBSHAPER_SOCKET\fP
The control socket, if \-\-socket does not name one.
.TP
\fBCOLUMNS\fP
How wide tables may be, instead of the width of the terminal.
.TP
\fBNO_COLOR\fP
If it is set, top has no colours.
.TP
\fBNOTIFY_SOCKET\fP, \fBWATCHDOG_USEC\fP, \fBLISTEN_FDS\fP, \fBSTATE_DIRECTORY\fP, \fBJOURNAL_STREAM\fP
Set by systemd.
.SH FILES
.TP
\fB./shaper.toml\fP, \fB/etc/shaper/shaper.toml\fP
The policy: the first of them that exists.
.TP
\fB/run/shaper/control.sock\fP
The control socket, unless the policy names another. Its group may use it.
.TP
\fB/var/lib/shaper/state\fP
What classes have sent, over restarts, if systemd runs shaper or the policy names such a file.
.SH SIGNALS
SIGHUP makes shaper read the policy again. After SIGTERM or SIGINT it accepts nothing new, and open sessions may go on for the drain time of the policy. A second signal stops it at once.
.SH SEE ALSO
.BR shaper.toml (5)
`

func manCommand() *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page; read it with: shaper man | man -l -",
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			_, err := io.WriteString(c.App.Writer, manPage(c.App))
			return err
		},
	}
}

// manPage returns the manual page in the language of man(7). The page that urfave/cli makes lacks
// the arguments and descriptions of commands.
func manPage(app *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH SHAPER 1 \"\" \"shaper %s\" \"User Commands\"\n", roff(app.Version))
	fmt.Fprintf(&b, ".SH NAME\nshaper \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n%s\n", roff(app.Usage), roff(app.UsageText), roff(app.Description))
	b.WriteString(".SH OPTIONS\n")
	manFlags(&b, app.VisibleFlags())
	b.WriteString(".SH COMMANDS\n")
	manCommands(&b, "shaper", app.VisibleCommands())
	b.WriteString(strings.TrimLeft(manRest, "\n"))
	return b.String()
}

func manCommands(b *strings.Builder, path string, commands []*cli.Command) {
	for _, c := range commands {
		name := path + " " + c.Name
		fmt.Fprintf(b, ".SS \"%s\"\n%s.\n", roff(strings.TrimRight(name+" "+c.ArgsUsage, " ")), roff(c.Usage))
		if c.Description != "" {
			fmt.Fprintf(b, ".PP\n%s\n", roff(c.Description))
		}
		manFlags(b, c.VisibleFlags())
		manCommands(b, name, c.Subcommands)
	}
}

func manFlags(b *strings.Builder, flags []cli.Flag) {
	for _, f := range flags {
		names, usage, _ := strings.Cut(f.String(), "\t")
		if !slices.Contains(f.Names(), "help") {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fP\n%s\n", roff(names), roff(usage))
		}
	}
}

// roff escapes what troff would not print as it is.
func roff(text string) string {
	text = strings.NewReplacer("\\", "\\e", "-", "\\-", "\"", "\\(dq").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
		if line == "" {
			lines[i] = ".PP"
		}
	}
	return strings.Join(lines, "\n")
}
