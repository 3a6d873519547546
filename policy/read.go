package policy

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"shaper/unit"
)

// File is a file of a policy, as it was read.
type File struct {
	Name string `json:"file"`
	Text string `json:"text"`
}

// Read returns the files of a policy: the one at path, and then the pieces that it includes. All
// of them are as they were at one moment. It is an error if one changes meanwhile, or if they are
// too large. Then Read does not read all of them.
func Read(path string) ([]File, error) {
	main, info, err := readMain(path)
	if err != nil {
		return nil, err
	}
	var r reading
	r.add(main, info)
	return r.readPieces()
}

// ReadFrom is Read for a stream, such as the standard input. If there is an error, it calls the
// stream name. The pieces are those beside a file with that name.
func ReadFrom(name string, in io.Reader) ([]File, error) {
	text, err := readText(name, in)
	if err != nil {
		return nil, err
	}
	var r reading
	r.add(File{name, text}, nil)
	return r.readPieces()
}

// A reading is the files of a policy that have been read, and what the system said of each. That
// is nil for a stream.
type reading struct {
	files []File
	infos []fs.FileInfo
	size  unit.Size // of all files
}

// readPieces reads the pieces of the first file.
func (r *reading) readPieces() ([]File, error) {
	main := r.files[0]
	patterns := included(main)
	if len(patterns) == 0 {
		return r.files, nil
	}
	pieces, err := expandAll(main.Name, patterns)
	if err != nil {
		return nil, err
	}
	for _, p := range pieces {
		if err := r.readPiece(p); err != nil {
			return nil, err
		}
	}
	return r.files, r.unchanged(patterns, pieces)
}

// readPiece reads one piece.
func (r *reading) readPiece(p piece) error {
	file, info, err := readFile(p.path)
	if err != nil {
		return p.by.failed(err)
	}
	if r.add(file, info); r.size > maxFile {
		return errTooLarge(p.path)
	}
	return nil
}

func (r *reading) add(file File, info fs.FileInfo) {
	r.files, r.infos, r.size = append(r.files, file), append(r.infos, info), r.size+unit.Size(len(file.Text))
}

// unchanged returns an error if a file is no longer the one that was read, or if the patterns name
// other files than these.
func (r *reading) unchanged(patterns []pattern, pieces []piece) error {
	main := r.files[0].Name
	again, err := expandAll(main, patterns)
	if err != nil {
		return err
	}
	if !slices.Equal(pieces, again) {
		return &fs.PathError{Op: "read", Path: main, Err: errors.New("files that it includes came or went while they were read; try again")}
	}
	for i, before := range r.infos {
		if before == nil || !before.Mode().IsRegular() {
			continue
		}
		now, err := os.Stat(r.files[i].Name)
		if err != nil {
			return err
		}
		if !os.SameFile(before, now) || changed(before, now) {
			return errChanged(r.files[i].Name)
		}
	}
	return nil
}

// ReadFile returns the file at path alone, without the pieces that it includes.
func ReadFile(path string) (File, error) {
	file, _, err := readMain(path)
	return file, err
}

// readMain is readFile for the file that the caller has named. The caller may have passed a descriptor instead.
func readMain(path string) (File, fs.FileInfo, error) {
	if isPassed(path) {
		return readNow(path)
	}
	return readFile(path)
}

// readFile reads one file. It is an error if the file changes meanwhile, or if to open it may take for ever.
func readFile(path string) (file File, before fs.FileInfo, err error) {
	if before, err := os.Stat(path); err == nil && !before.Mode().IsRegular() && !before.IsDir() {
		return file, nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a regular file")}
	}
	return readNow(path)
}

// readNow opens and reads a file. It is an error if the file changes meanwhile.
func readNow(path string) (file File, before fs.FileInfo, err error) {
	f, err := os.Open(path)
	if err != nil {
		return file, nil, err
	}
	defer f.Close()
	if before, err = f.Stat(); err != nil {
		return file, nil, err
	}
	text, err := readText(path, f)
	if err != nil {
		return file, nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return file, nil, err
	}
	// A pipe has no size to compare.
	if before.Mode().IsRegular() && (after.Size() != int64(len(text)) || changed(before, after)) {
		return file, nil, errChanged(path)
	}
	return File{path, text}, before, nil
}

// isPassed reports whether a path names a descriptor that the caller has passed to the process, as a shell
// does for <(COMMAND).
func isPassed(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// readText reads a stream, but not more than a policy may have.
func readText(name string, in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, int64(maxFile)+1))
	if err != nil {
		return "", err
	}
	if unit.Size(len(data)) > maxFile {
		return "", errTooLarge(name)
	}
	return string(data), nil
}

// maxFile is the largest size of a policy with all its pieces. It has room for hundreds of
// thousands of prefixes, and protects against a log file or /dev/zero.
const maxFile = 16 * unit.MiB

func errTooLarge(name string) error {
	return Errors{{File: name, Line: 1, Column: 1, Key: "syntax",
		Problem: "the file is larger than " + maxFile.String(), Allowed: "a policy is at most that large"}}
}

func changed(before, after fs.FileInfo) bool {
	return before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime())
}

func errChanged(path string) error {
	return &fs.PathError{Op: "read", Path: path, Err: errors.New("the file changed while it was read; write a new one beside it and rename it")}
}
