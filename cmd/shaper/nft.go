package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"shaper/nft"
	"shaper/policy"
	"shaper/tc"
)

func nftCommand() *cli.Command {
	return &cli.Command{
		Name:  "nft",
		Usage: "lead connections to transparent listeners, by nftables",
		Description: "A listener with mode = \"transparent\" gets the connections that nftables leads to it. The rules are one table, inet shaper; a routing\n" +
			"rule goes with them. apply replaces them at once, clear removes them and needs no policy. Both need the capability CAP_NET_ADMIN.",
		Subcommands: []*cli.Command{
			{Name: "plan", Usage: "print the table and the routing as a shell script", Flags: []cli.Flag{jsonFlag()}, Action: withPlan(nftPlan)},
			{Name: "apply", Usage: "put them into the kernel, in place of earlier ones", Flags: []cli.Flag{jsonFlag()}, Action: withPlan(nftApply)},
			{Name: "clear", Usage: "remove what shaper has put into the kernel", Flags: []cli.Flag{jsonFlag()}, Action: nftClear},
		},
		Action: noSubcommand("nft", "plan, apply or clear"),
	}
}

// withPlan returns an action that calls f with the hash of the policy and its plan.
func withPlan(f func(c *cli.Context, hash string, plan *nft.Plan) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		path, _ := configPath(c)
		p, _, err := loadPolicy(c, path)
		if err != nil {
			return err
		}
		plan, err := nft.Of(p)
		if err != nil {
			return err
		}
		return f(c, p.Hash, plan)
	}
}

// nftPlanned is what nft apply would put into the kernel.
type nftPlanned struct {
	Table  string   `json:"table"`
	Routes []string `json:"routes"`
}

func nftPlan(c *cli.Context, _ string, plan *nft.Plan) error {
	if c.Bool("json") {
		return printJSON(c, nftPlanned{plan.Table(), plan.Routes()})
	}
	fmt.Fprint(c.App.Writer, plan)
	return nil
}

// mayChangeRules returns an error if the process may not change the network.
func mayChangeRules() error {
	err := tc.Permitted()
	if errors.Is(err, tc.ErrNotPermitted) {
		err = fmt.Errorf("shaper nft: %w", tc.ErrNotPermitted)
	}
	return err
}

func nftApply(c *cli.Context, hash string, plan *nft.Plan) error {
	if err := mayChangeRules(); err != nil {
		return err
	}
	if err := plan.Apply(); err != nil {
		return err
	}
	note(c, "nft apply", policy.Change{Op: "+", What: "nft", Name: "inet shaper", New: "the rules of policy " + hash})
	return nftDone(c, true, "table inet shaper and its routing are in force")
}

// nftChanged says whether a command has changed the kernel.
type nftChanged struct {
	Table   string `json:"table"`
	Changed bool   `json:"changed"`
}

// nftDone prints whether the kernel was changed, as JSON or in words.
func nftDone(c *cli.Context, changed bool, said string) error {
	if c.Bool("json") {
		return printJSON(c, nftChanged{"inet shaper", changed})
	}
	_, err := fmt.Fprintln(c.App.Writer, said)
	return err
}

func nftClear(c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	if err := mayChangeRules(); err != nil {
		return err
	}
	found, err := nft.Clear()
	if err != nil {
		return err
	}
	said := "there was nothing to remove"
	if found {
		said = "table inet shaper and its routing are removed"
		note(c, "nft clear", policy.Change{Op: "-", What: "nft", Name: "inet shaper", Old: "the table and its routing"})
	}
	return nftDone(c, found, said)
}
