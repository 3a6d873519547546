// Package top shows in a terminal what the dashboard shows in a browser: the tree of classes, and why
// a class waits. It changes nothing.
//
// [Run] follows a [Source], which is the daemon. A frame is a function of the model, so that tests
// compare whole frames as text.
//
// # Files
//
// A file calls only those below it.
//
//	run      [Run]: one goroutine owns the model; the source and the keyboard tell it what to change
//	model    what is known, what is asked for; what a key does
//	view     the frame: its head, its foot, and what stands between them
//	tree     all classes
//	columns  the columns of the tree
//	page     one class: why it waits, its curves, its figures
//	curve    a curve of blocks
//	past     what has been seen of a class while its page is open
//	size     how much of the terminal there is for what
//	screen   draws frames on a terminal
//	frame    lines of styled text
//	tty      the terminal: its modes and its size
//	keys     what a keyboard sends
package top
