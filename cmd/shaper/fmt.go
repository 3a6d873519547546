package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"shaper/policy"
)

func fmtCommand() *cli.Command {
	return &cli.Command{
		Name:      "fmt",
		Usage:     "print a policy file in the one form of all policies, with its comments",
		ArgsUsage: "[FILE...]",
		Description: "Without FILE it is the policy file, and with -w, -d or -l the files that it includes too. FILE may be - for\n" +
			"the standard input. With -d or -l the exit code is 1 if a file is not formatted.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "write", Aliases: []string{"w"}, Usage: "write the result into the file", DisableDefaultText: true},
			&cli.BoolFlag{Name: "diff", Aliases: []string{"d"}, Usage: "print what would change", DisableDefaultText: true},
			&cli.BoolFlag{Name: "list", Aliases: []string{"l"}, Usage: "print the names of files that are not formatted", DisableDefaultText: true},
		},
		Action: format,
	}
}

func format(c *cli.Context) error {
	files, err := filesToFormat(c)
	if err != nil {
		return err
	}
	unformatted := 0
	for _, file := range files {
		text, err := policy.Format(file)
		if err != nil {
			return err
		}
		if text != file.Text {
			unformatted++
		}
		if err := showFormatted(c, file, text); err != nil {
			return err
		}
	}
	if unformatted > 0 && (c.Bool("diff") || c.Bool("list")) && !c.Bool("write") {
		return fmt.Errorf("shaper: files that are not formatted: %d; shaper fmt -w formats them", unformatted)
	}
	return nil
}

// printsOneFile reports whether the command prints formatted text. It does so for only one file, since
// nobody could tell where the next one begins.
func printsOneFile(c *cli.Context) bool {
	return !c.Bool("write") && !c.Bool("diff") && !c.Bool("list")
}

// filesToFormat reads the files of a command line. If the command line names none, these are all files
// of the policy; a named file comes without those that it includes.
func filesToFormat(c *cli.Context) ([]policy.File, error) {
	paths := c.Args().Slice()
	if len(paths) == 0 {
		path, _ := configPath(c)
		files, err := readPolicy(c, path)
		if err == nil && printsOneFile(c) {
			files = files[:1]
		}
		return files, err
	}
	if printsOneFile(c) && len(paths) > 1 {
		return nil, usageError("one file is printed; for several there are -w, -d and -l")
	}
	var files []policy.File
	for _, path := range paths {
		withIncluded, err := readPolicy(c, path)
		if err != nil {
			return nil, err
		}
		if path == "-" && c.Bool("write") {
			return nil, usageError("the standard input cannot be written; -w needs a file")
		}
		files = append(files, withIncluded[0])
	}
	return files, nil
}

// showFormatted prints text, which is the formatted text of a file. With -l, -d or -w it does what these
// say instead, but only if the file is not formatted yet.
func showFormatted(c *cli.Context, file policy.File, text string) error {
	out := c.App.Writer
	if printsOneFile(c) {
		_, err := io.WriteString(out, text)
		return err
	}
	if text == file.Text {
		return nil
	}
	if c.Bool("list") {
		fmt.Fprintln(out, file.Name)
	}
	if c.Bool("diff") {
		writeUnified(out, file.Name, file.Text, text)
	}
	if c.Bool("write") {
		return replaceFile(file.Name, func(out io.Writer) error {
			_, err := io.WriteString(out, text)
			return err
		})
	}
	return nil
}
