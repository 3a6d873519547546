// Package state keeps what limiters remember in a file, so that budgets outlive the process.
// It knows no class and no algorithm: it keeps leases ([limit.Lease]), and grants them once
// they are safe on the disk.
//
// The file is always whole: each write makes a new one beside it, syncs it, renames it, and
// syncs the directory. A checksum covers every byte. What is not exactly what was written is
// never trusted.
//
// Files call downwards only, in this order:
//
//	file     what is kept, from Open to Close
//	writer   one goroutine writes what it is asked to keep, and answers when it is safe
//	open     finds what the last process has kept
//	replace  puts a new file in the place of the old one
//	format   the bytes of the file
//	clock    how much time has passed since another process wrote
package state
