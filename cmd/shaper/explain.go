package main

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "show which rule and class a client or its message gets, and why",
		ArgsUsage: "SOURCE",
		Description: "SOURCE is an address, or address:port. Without --listener and --port, every listener and port is explained.\n" +
			"The policy is the one in force, or with --policy that of a file; then no daemon is asked. With --expect the\n" +
			"exit code is 1 if any listener and port lead to another class.",
		Flags: append([]cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "policy", Usage: "the policy `FILE` to explain, without a daemon"},
			&cli.StringFlag{Name: "expect", Usage: "fail unless the client gets this `CLASS`"},
		}, clientFlags()...),
		Action: explain,
	}
}

// clientFlags returns flags that say what a client connects to, and what it sends.
func clientFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "listener", Usage: "the `LISTENER` that the client connects to"},
		&cli.StringFlag{Name: "port", Usage: "the `PORT` that the client connects to", DefaultText: "those of the listener"},
		&cli.StringFlag{Name: "destination", Usage: "the `ADDRESS` of the upstream", DefaultText: "looked up if a rule needs it"},
		&cli.StringFlag{Name: "user", Usage: "the `USER` that has logged in (entries)"},
		&cli.StringFlag{Name: "server-name", Usage: "the `NAME` that the client asks for (entries)"},
		&cli.StringFlag{Name: "system-id", Usage: "the `SYSTEM_ID` of a message's bind (smpp)"},
		&cli.StringFlag{Name: "source-addr", Usage: "the source `ADDR` of a message (smpp)"},
		&cli.StringFlag{Name: "recipient", Usage: "the destination `ADDR` of a message (smpp)"},
		&cli.StringFlag{Name: "data-coding", Usage: "the data_coding of a message, an `INTEGER` (smpp)"},
		&cli.StringFlag{Name: "esm-class", Usage: "the esm_class of a message, an `INTEGER` (smpp)"},
		&cli.StringFlag{Name: "path", Usage: "the `PATH` of a message (http)"},
		&cli.StringFlag{Name: "method", Usage: "the `METHOD` of a message (http)"},
		&cli.StringFlag{Name: "host", Usage: "the `HOST` of a message (http)"},
		&cli.StringSliceFlag{Name: "header", Usage: "a `FIELD` of a message, like \"X-Api-Key: abc\"; may be repeated (http)"},
	}
}

// explainRequestOf returns what clientFlags ask about a client.
func explainRequestOf(c *cli.Context, source string) (ask daemon.ExplainRequest, err error) {
	ask = daemon.ExplainRequest{Source: source, Listener: c.String("listener"), Destination: c.String("destination"),
		User: c.String("user"), ServerName: c.String("server-name")}
	for _, name := range policy.FieldNames() {
		ask.Set(name, c.String(strings.ReplaceAll(name, "_", "-")))
	}
	for _, line := range c.StringSlice("header") {
		ask.Header += line + "\n"
	}
	if err := ask.Check(); err != nil {
		return ask, usageError("%v", err)
	}
	ask.Port, err = portFlag(c)
	return ask, err
}

// portFlag returns the value of --port; 0 if it is not given.
func portFlag(c *cli.Context) (uint16, error) {
	if !c.IsSet("port") {
		return 0, nil
	}
	port, err := strconv.ParseUint(c.String("port"), 10, 16)
	if err != nil || port == 0 {
		return 0, usageError("--port: %q is not a port; a port is from 1 to 65535", c.String("port"))
	}
	return uint16(port), nil
}

func explain(c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	ask, err := explainRequestOf(c, c.Args().First())
	if err != nil {
		return err
	}
	all, err := explanations(c, ask)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, all)
	} else {
		printExplanations(c.App.Writer, all)
	}
	if err != nil {
		return err
	}
	return expect(c.String("expect"), all)
}

// explanations returns the explanations of the daemon, or of the file of --policy.
func explanations(c *cli.Context, ask daemon.ExplainRequest) ([]policy.Explanation, error) {
	if file := c.String("policy"); file != "" {
		p, _, err := loadPolicy(c, file)
		if err != nil {
			return nil, err
		}
		if err := expectable(c.String("expect"), p); err != nil {
			return nil, err
		}
		return daemon.Explain(c.Context, p, ask)
	}
	d, err := client(c)
	if err != nil {
		return nil, err
	}
	if class := c.String("expect"); class != "" {
		p, err := d.Policy(c.Context)
		if err == nil {
			err = expectable(class, &p)
		}
		if err != nil {
			return nil, err
		}
	}
	return d.Explain(c.Context, ask)
}

// expectable returns an error if a policy has no class of a name; "" is none.
func expectable(class string, p *policy.Policy) error {
	if _, known := p.Class(class); known || class == "" {
		return nil
	}
	var names []string
	for _, one := range p.Classes {
		names = append(names, one.Name)
	}
	return usageError("--expect: %s", policy.NoClass(class, names))
}

func printExplanations(w io.Writer, all []policy.Explanation) {
	for _, e := range all {
		writeWrapped(w, fmt.Sprintf("%s: %v", wayIn(e.Conn), e))
	}
}

// expect returns an error if an explanation has another class than this; "" expects nothing.
func expect(class string, all []policy.Explanation) error {
	for _, e := range all {
		if class != "" && e.Class != class {
			return fmt.Errorf("shaper: %s: the class is %q, and %q is expected", wayIn(e.Conn), e.Class, class)
		}
	}
	return nil
}

// printRoutes prints where the rules of each listener lead. The routes of a listener stand
// together.
func printRoutes(w io.Writer, routes []policy.Route) {
	listener := ""
	for _, r := range routes {
		if r.Listener != listener {
			listener = r.Listener
			fmt.Fprintf(w, "listener %s\n", listener)
		}
		writeWrapped(w, fmt.Sprintf("  %v\n", r))
	}
}

// isAddress reports whether an argument is an address, with or without a port, and not a file.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		_, err = netip.ParseAddrPort(s)
	}
	return err == nil
}

// wayIn says where a connection comes in. The port of a transparent listener may not be known.
func wayIn(c policy.Conn) string {
	if c.Port == 0 {
		return "listener " + c.Listener
	}
	return fmt.Sprintf("listener %s, port %d", c.Listener, c.Port)
}
