package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"shaper/daemon"
)

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr))
}

// run runs one command line, writes its error to stderr, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &output{Writer: stdout}
	app := newApp(out, stderr)
	app.Setup()
	if completesFile(app, args) {
		return exitDone
	}
	err := app.RunContext(ctx, flagsFirst(app, args))
	if err == nil {
		err = out.err
	}
	if err == nil {
		return exitDone
	}
	if err != errSilent {
		fmt.Fprintln(stderr, err)
	}
	if errors.Is(err, daemon.ErrUnreachable) {
		fmt.Fprintln(stderr, "shaper run starts one; -c FILE asks the daemon of another policy, --socket PATH that of another socket")
	}
	return exitCode(err)
}
