package tests

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makeIn runs make in the root of the repository. It installs the program that is built already.
func makeIn(t *testing.T, args ...string) {
	t.Helper()
	makeAt(t, "..", append(args, "PROGRAM="+plain())...)
}

// makeAt runs make in a directory.
func makeAt(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(tool(t, "make", "make"), append([]string{"-C", dir}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), setsInstall)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
}

// setsInstall reports whether an environment variable changes what `make install` does, though the
// test does not say so. MAKEFLAGS has the variables of a make that runs the tests.
func setsInstall(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"PREFIX", "DESTDIR", "MAKEFLAGS", "MAKEOVERRIDES"}, name)
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
	dir := t.TempDir()
	makeIn(t, "install", "DESTDIR="+dir)
	want := []string{
		"/usr/local/bin/shaper",
		"/usr/local/lib/systemd/system/shaper.service",
		"/usr/local/lib/sysusers.d/shaper.conf",
		"/usr/local/lib/tmpfiles.d/shaper.conf",
		"/usr/local/share/bash-completion/completions/shaper",
		"/usr/local/share/fish/vendor_completions.d/shaper.fish",
		"/usr/local/share/man/man1/shaper.1",
		"/usr/local/share/man/man5/shaper.toml.5",
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
	for page, part := range map[string]string{"man1/shaper.1": "EXIT STATUS", "man5/shaper.toml.5": "max_sessions (default: 65536)"} {
		var faults bytes.Buffer
		man := exec.Command(tool(t, "man", "man-db"), "--warnings=all", "-l", dir+"/usr/local/share/man/"+page)
		man.Stderr = &faults
		if text, err := man.Output(); err != nil || faults.Len() > 0 || !strings.Contains(string(text), part) {
			t.Errorf("man %s: %v\n%s%s", page, err, &faults, text)
		}
	}
	sysusers := exec.Command(tool(t, "systemd-sysusers", "systemd"), "--dry-run", "--root="+dir)
	if out, err := sysusers.CombinedOutput(); err != nil || !strings.Contains(string(out), "Creating user 'shaper'") {
		t.Errorf("systemd-sysusers: %v\n%s", err, out)
	}
	tmpfiles := exec.Command(tool(t, "systemd-tmpfiles", "systemd"), "--cat-config", "--root="+dir, "/usr/local/lib/tmpfiles.d/shaper.conf")
	if out, err := tmpfiles.CombinedOutput(); err != nil || !strings.Contains(string(out), "d /var/lib/shaper 0700 shaper shaper") {
		t.Errorf("systemd-tmpfiles: %v\n%s", err, out)
	}
	makeIn(t, "uninstall", "DESTDIR="+dir)
	if files := filesUnder(t, dir); len(files) > 0 {
		t.Errorf("uninstall leaves the files %v", files)
	}
}

// systemd accepts the installed unit, and bash completes commands with the installed script.
func TestInstalledUnit(t *testing.T) {
	t.Parallel()
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
