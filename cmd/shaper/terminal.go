package main

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// defaultWidth is that of a terminal that does not say how wide it is.
const defaultWidth = 80

// widthOf returns how many characters a line has room for: as COLUMNS says, as for ps
// and its like, else as wide as the terminal is. ok is false if there is no terminal: a
// program or a file takes lines of any length.
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

// sizeOf returns the size of a terminal; ok is false where there is none.
func sizeOf(w io.Writer) (size *unix.Winsize, ok bool) {
	if s, paged := w.(*screen); paged {
		w = s.terminal
	}
	file, isFile := w.(*os.File)
	if !isFile {
		return nil, false
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	return size, err == nil
}
