package main

import (
	"github.com/urfave/cli/v2"

	"shaper/policy"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name:  "schema",
		Usage: "print a JSON schema of policy files, with which an editor completes and checks them",
		Description: "The schema knows sections, keys and types. Only shaper check knows whether a policy is valid.\n" +
			"For editors with taplo: shaper schema >shaper.schema.json, and in the policy: #:schema shaper.schema.json",
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return printJSON(c, policy.Schema())
		},
	}
}
