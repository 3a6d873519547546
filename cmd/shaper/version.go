package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"
)

// version is the version of the program. The linker sets that of a release (-X main.version=1.2.3).
var version = "0.1.0-dev"

type versionReading struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() versionReading {
	return versionReading{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
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
