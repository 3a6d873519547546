package main

import "io"

// output is the standard output, and remembers the first error of a write. So a command that prints
// line by line need not look at each of them: run asks once, at the end.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}
