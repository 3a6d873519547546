package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
)

// Where the policy file is if the command line does not say.
const (
	nearbyConfig = "shaper.toml"
	systemConfig = "/etc/shaper/shaper.toml"
)

// configPath returns the policy file of a command line, and whether the command line names it.
func configPath(c *cli.Context) (path string, named bool) {
	if path := c.String("config"); path != "" {
		return path, true
	}
	if _, err := os.Stat(nearbyConfig); err == nil {
		return nearbyConfig, false
	}
	return systemConfig, false
}

// stdin is the name of the file "-" in errors.
const stdin = "<stdin>"

// loadPolicy loads a policy from a file, or from the standard input if path is "-".
func loadPolicy(c *cli.Context, path string) (*policy.Policy, policy.Errors, error) {
	files, err := readPolicy(c, path)
	if err != nil {
		return nil, nil, err
	}
	return policy.LoadFiles(files)
}

// readPolicy reads the files of a policy. The first is called stdin if path is "-".
func readPolicy(c *cli.Context, path string) ([]policy.File, error) {
	if path == "-" {
		return policy.ReadFrom(stdin, c.App.Reader)
	}
	return policy.Read(path)
}

// client returns a client for the daemon at --socket, or else for that of the policy file. The
// file must exist but may have mistakes: a daemon then still runs with an older policy.
func client(c *cli.Context) (*daemon.Client, error) {
	if socket := c.String("socket"); socket != "" {
		return daemon.NewClient(socket), nil
	}
	path, named := configPath(c)
	if path == "-" {
		return nil, usageError("the standard input does not say where the daemon is; %sneeds --socket PATH, or -c FILE with a policy file", commandPath(c))
	}
	file, err := policy.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return daemon.NewClient(policy.DefaultDaemon().Control), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w; give --socket PATH, or -c FILE with a policy file: it says where the control socket is", err)
	}
	return daemon.NewClient(policy.ControlPath(path, []byte(file.Text))), nil
}
