package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "validate a policy file, and print what it says",
		ArgsUsage: "[FILE] [SOURCE]",
		Description: "Warnings go to the standard error and do not fail the check. FILE may be - for the standard input.\n" +
			"With --explain it prints where the rules of each listener lead instead. With a SOURCE, an address or\n" +
			"address:port, it prints which rule and class that client or its message gets, as shaper explain does.",
		Flags: append([]cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "all", Usage: "print every key, also those that the file omits", DisableDefaultText: true},
			&cli.BoolFlag{Name: "strict", Usage: "treat warnings as errors", DisableDefaultText: true},
			&cli.BoolFlag{Name: "explain", Usage: "print where the rules lead", DisableDefaultText: true},
		}, clientFlags()...),
		Action: check,
	}
}

func check(c *cli.Context) error {
	path, source, err := checkArguments(c)
	if err != nil {
		return err
	}
	files, err := readPolicy(c, path)
	if err != nil {
		return err
	}
	p, warnings, err := policy.LoadFiles(files)
	if err != nil {
		return err
	}
	ofFiles, err := daemon.CheckFiles(p)
	if err != nil {
		return err
	}
	warnings = append(warnings, ofFiles...)
	if c.Bool("strict") && len(warnings) > 0 {
		return warnings
	}
	if !c.Bool("json") {
		for _, w := range warnings {
			fmt.Fprintf(c.App.ErrWriter, "warning: %v\n", w)
		}
	}
	return printChecked(c, source, files, p, warnings)
}

// printChecked prints of a policy without mistakes what the flags ask for: where one client gets, where the
// rules lead, or the keys and their values.
func printChecked(c *cli.Context, source string, files []policy.File, p *policy.Policy, warnings policy.Errors) error {
	switch {
	case source != "":
		return checkSource(c, p, source)
	case c.Bool("explain") && c.Bool("json"):
		return printJSON(c, policy.Routes(p))
	case c.Bool("explain"):
		printRoutes(c.App.Writer, policy.Routes(p))
		return nil
	case c.Bool("json"):
		return printJSON(c, checked{p, append(policy.Errors{}, warnings...)})
	case c.Bool("all"):
		return p.WriteTree(c.App.Writer)
	}
	return p.WriteWritten(c.App.Writer, policy.Written(files))
}

// checked is what --json prints of a policy without mistakes.
type checked struct {
	Policy   *policy.Policy `json:"policy"`
	Warnings policy.Errors  `json:"warnings"`
}

// checkArguments returns the policy file and, with --explain, the client: source is "" if the command line
// names none. The two may come in either order.
func checkArguments(c *cli.Context) (path, source string, err error) {
	explains := c.Bool("explain")
	atMost := 1
	if explains {
		atMost = 2
	}
	if err := arguments(c, 0, atMost); err != nil {
		return "", "", err
	}
	words := c.Args().Slice()
	if i := slices.IndexFunc(words, isAddress); i >= 0 && explains {
		source = words[i]
		words = slices.Delete(words, i, i+1)
	}
	for _, flag := range clientFlags() {
		if name := flag.Names()[0]; c.IsSet(name) && source == "" {
			return "", "", usageError("--%s describes a client; check --explain FILE SOURCE names the client", name)
		}
	}
	path, _ = configPath(c)
	switch len(words) {
	case 1:
		path = words[0]
	case 2:
		return "", "", usageError("%q is not an address; a SOURCE is like \"10.1.2.3\" or \"10.1.2.3:4567\"", words[1])
	}
	return path, source, nil
}

// checkSource prints which rule and class a client gets.
func checkSource(c *cli.Context, p *policy.Policy, source string) error {
	request, err := explainRequestOf(c, source)
	if err != nil {
		return err
	}
	explanations, err := daemon.Explain(c.Context, p, request)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, explanations)
	}
	printExplanations(c.App.Writer, explanations)
	return nil
}
