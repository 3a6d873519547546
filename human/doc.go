// Package human prints figures, tables and texts for people, in a terminal or on paper.
//
// # Files
//
// Files call downwards only, in this order:
//
//	format  figures and times
//	cell    texts in columns: how wide they are, and what may not reach a terminal
//	tree    classes in the order of their tree
package human
