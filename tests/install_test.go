package tests

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makeIn runs make in the root of the repository.
func makeIn(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("make", append([]string{"-C", ".."}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
}

// filesUnder returns the sorted paths of the files below a directory.
func filesUnder(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// `make install DESTDIR=` installs every file in its place, and no file names the directory
// DESTDIR. `make uninstall` removes them all.
func TestInstallIntoAPackage(t *testing.T) {
	t.Parallel()
	tool(t, "make", "make")
	dir := t.TempDir()
	makeIn(t, "install", "DESTDIR="+dir)
	want := []string{
		"/usr/local/bin/shaper",
		"/usr/local/lib/systemd/system/shaper.service",
		"/usr/local/lib/sysusers.d/shaper.conf",
		"/usr/local/share/bash-completion/completions/shaper",
		"/usr/local/share/fish/vendor_completions.d/shaper.fish",
		"/usr/local/share/man/man1/shaper.1",
		"/usr/local/share/zsh/site-functions/_shaper",
	}
	if diff := cmp.Diff(want, filesUnder(t, dir)); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	unit, err := os.ReadFile(dir + "/usr/local/lib/systemd/system/shaper.service")
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/local/bin/shaper run\n") || strings.Contains(string(unit), dir) || strings.Contains(string(unit), "/usr/bin/shaper") {
		t.Errorf("the unit does not start /usr/local/bin/shaper, or names another directory (%v):\n%s", err, unit)
	}
	if out, err := exec.Command(dir+"/usr/local/bin/shaper", "version").Output(); err != nil || !strings.HasPrefix(string(out), "shaper ") {
		t.Errorf("shaper version: %v, %s", err, out)
	}
	man := exec.Command(tool(t, "man", "man-db"), "--warnings=all", "-l", dir+"/usr/local/share/man/man1/shaper.1")
	page, err := man.Output()
	if err != nil || !strings.Contains(string(page), "EXIT STATUS") {
		t.Errorf("man: %v\n%s", err, page)
	}
	sysusers := exec.Command(tool(t, "systemd-sysusers", "systemd"), "--dry-run", "--root="+dir)
	if out, err := sysusers.CombinedOutput(); err != nil || !strings.Contains(string(out), "Creating user 'shaper'") {
		t.Errorf("systemd-sysusers: %v\n%s", err, out)
	}
	makeIn(t, "uninstall", "DESTDIR="+dir)
	if files := filesUnder(t, dir); len(files) > 0 {
		t.Errorf("uninstall leaves the files %v", files)
	}
}

// systemd accepts the installed unit, and bash completes commands with the installed script.
func TestInstalledUnit(t *testing.T) {
	t.Parallel()
	tool(t, "make", "make")
	prefix := t.TempDir()
	makeIn(t, "install", "PREFIX="+prefix)
	verify := exec.Command(tool(t, "systemd-analyze", "systemd"), "verify", "--man=no", prefix+"/lib/systemd/system/shaper.service")
	if out, err := verify.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	bash := exec.Command(tool(t, "bash", "bash"), "-c", `source "$1/share/bash-completion/completions/shaper"; PATH="$1/bin:$PATH"
COMP_WORDS=(shaper sta); COMP_CWORD=1; _shaper; echo "${COMPREPLY[@]}"`, "bash", prefix)
	if out, err := bash.Output(); err != nil || string(out) != "status\n" {
		t.Errorf("bash completes %q, %v", out, err)
	}
	makeIn(t, "uninstall", "PREFIX="+prefix)
	if files := filesUnder(t, prefix); len(files) > 0 {
		t.Errorf("uninstall leaves the files %v", files)
	}
}
