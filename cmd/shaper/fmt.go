package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

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

// filesToFormat reads the files of a command line.
func filesToFormat(c *cli.Context) ([]policy.File, error) {
	printed := !c.Bool("write") && !c.Bool("diff") && !c.Bool("list")
	paths := c.Args().Slice()
	if len(paths) == 0 {
		path, _ := configPath(c)
		files, err := readPolicy(c, path)
		if err == nil && printed {
			files = files[:1]
		}
		return files, err
	}
	if printed && len(paths) > 1 {
		return nil, usageError("one file is printed; for several there are -w, -d and -l")
	}
	var files []policy.File
	for _, path := range paths {
		of, err := readPolicy(c, path)
		if err != nil {
			return nil, err
		}
		if files = append(files, of[0]); path == "-" && c.Bool("write") {
			return nil, usageError("the standard input cannot be written; -w needs a file")
		}
	}
	return files, nil
}

// showFormatted does with the formatted text of a file what the flags say.
func showFormatted(c *cli.Context, file policy.File, text string) error {
	out := c.App.Writer
	if !c.Bool("write") && !c.Bool("diff") && !c.Bool("list") {
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
		return replaceFile(file.Name, text)
	}
	return nil
}

// replaceFile gives a file another text. Whoever reads it meanwhile reads all of the old one, or all of
// the new one.
func replaceFile(path, text string) (err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil { // not wrapped: the file itself can be opened
		return fmt.Errorf("shaper: cannot write a file beside %s: %v", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	defer f.Close()
	if _, err = f.WriteString(text); err != nil {
		return err
	}
	if err = keepOwner(f, info); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// keepOwner gives a new file the owner and the mode of the one that it replaces.
func keepOwner(f *os.File, info os.FileInfo) error {
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(of.Uid), int(of.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(info.Mode().Perm())
}
