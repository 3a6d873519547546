package main

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// defaultWidth is the width of a terminal that does not report one.
const defaultWidth = 80

// widthOf returns how many characters fit into a line: what COLUMNS says, as for ps(1), or else the width
// of the terminal. ok is false if there is neither. Then w is a pipe or a file, which takes lines of any
// length, and callers need not keep to the width.
func widthOf(w io.Writer) (width int, ok bool) {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n, true
	}
	size, ok := sizeOf(w)
	if ok && size.Col > 0 {
		return int(size.Col), true
	}
	return defaultWidth, ok
}

// sizeOf returns the size of a terminal; ok is false if w is not one. With --watch, the terminal is behind
// a screen, and a command's standard output is behind an output.
func sizeOf(w io.Writer) (size *unix.Winsize, ok bool) {
	if s, ok := w.(*screen); ok {
		w = s.terminal
	}
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return nil, false
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	return size, err == nil
}
