package tests

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shaper/tests/trial"
)

// The packages have what `make install` installs, with man pages compressed, a policy, and
// documents.
func TestPackagesHaveWhatIsInstalled(t *testing.T) {
	if !trial.Full {
		t.Skip("runs at full size only: make test-packages")
	}
	t.Parallel()
	root, out := t.TempDir(), t.TempDir()
	makeIn(t, "install", "deb", "rpm", "PREFIX=/usr", "DESTDIR="+root, "OUT="+out)
	want := append(filesUnder(t, root), "/etc/shaper/shaper.toml", "/usr/share/doc/shaper/changelog.gz",
		"/usr/share/doc/shaper/copyright", "/usr/share/doc/shaper/sbom.cdx.json", "/usr/share/doc/shaper/third-party.gz")
	for i, file := range want {
		if strings.Contains(file, "/man/") {
			want[i] += ".gz"
		}
	}
	slices.Sort(want)
	rpm := output(t, exec.Command(tool(t, "rpm", "rpm"), "-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", only(t, out, "*.rpm")))
	if diff := cmp.Diff(want, filesOf(rpm)); diff != "" {
		t.Errorf("the files of the rpm differ (-want +got):\n%s", diff)
	}
	if !strings.Contains(rpm, " /etc/shaper\n") {
		t.Error("the rpm does not own /etc/shaper, and so leaves it behind, empty")
	}
	for i, file := range want {
		want[i] = strings.Replace(file, "/zsh/site-functions/", "/zsh/vendor-completions/", 1)
	}
	want = append(want, "/usr/share/doc/shaper/changelog.Debian.gz", "/usr/share/lintian/overrides/shaper")
	slices.Sort(want)
	deb := output(t, exec.Command(tool(t, "dpkg-deb", "dpkg"), "-c", only(t, out, "*.deb")))
	if diff := cmp.Diff(want, filesOf(deb)); diff != "" {
		t.Errorf("the files of the deb differ (-want +got):\n%s", diff)
	}
}

// filesOf returns the sorted paths of a listing, without directories. A path is the last word of a
// line, and the mode is the first.
func filesOf(listing string) (files []string) {
	for line := range strings.Lines(listing) {
		if words := strings.Fields(line); line[0] != 'd' {
			files = append(files, strings.TrimPrefix(words[len(words)-1], "."))
		}
	}
	slices.Sort(files)
	return files
}

// Packages and archives of one commit are the same bytes, whatever the directory, umask, time zone
// and locale are. lintian finds no fault in them, and the list of components is that of the program.
func TestPackagesAreReproducible(t *testing.T) {
	if !trial.Full {
		t.Skip("runs at full size only: make test-packages")
	}
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "a", "longer", "path")
	for clone, with := range map[string]string{first: "umask 022; export TZ=UTC0", second: "umask 077; export TZ=Pacific/Auckland LC_ALL=C.UTF-8"} {
		tool(t, "git", "git")
		output(t, exec.Command("sh", "-c", with+"; git clone -q .. "+clone+" && cd "+clone+" && make deb rpm dist && make deb ARCH=arm64"))
	}
	if one, other := sums(t, first+"/dist"), sums(t, second+"/dist"); len(one) != 6 || !cmp.Equal(one, other) {
		t.Errorf("two builds differ, or lack one of 6 files:\n%v\n%v", one, other)
	}
	for _, deb := range []string{only(t, first, "dist/*_amd64.deb"), only(t, first, "dist/*_arm64.deb")} {
		if out, err := exec.Command(tool(t, "lintian", "lintian"), "--allow-root", "--fail-on", "error,warning", deb).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("lintian %s: %v\n%s", filepath.Base(deb), err, out)
		}
	}
	checkArchive(t, first+"/dist")
}

// A tree without a repository of its own gives the same packages wherever it stands: it takes neither
// the version nor the maintainer from a repository that it lies in.
func TestPackagesOfAnArchive(t *testing.T) {
	if !trial.Full {
		t.Skip("runs at full size only: make test-packages")
	}
	t.Parallel()
	inside, alone := filepath.Join(t.TempDir(), "inside"), t.TempDir()
	output(t, exec.Command("sh", "-ec", "git init -q \"$0\"; cd \"$0\"; git -c user.name=Foreign -c user.email=f@example.org commit -q --allow-empty -m x; git tag v9.9.9; mkdir tree", inside))
	for _, tree := range []string{inside + "/tree", alone} {
		output(t, exec.Command("sh", "-ec", "git -C .. archive HEAD | tar -xC \"$0\" && make -C \"$0\" deb rpm dist", tree))
	}
	if one, other := sums(t, inside+"/tree/dist"), sums(t, alone+"/dist"); len(one) != 5 || !cmp.Equal(one, other) {
		t.Errorf("two builds differ, or lack one of 5 files:\n%v\n%v", one, other)
	}
	about := output(t, exec.Command(tool(t, "dpkg-deb", "dpkg"), "-f", only(t, alone, "dist/*.deb"), "Version", "Maintainer"))
	if !strings.Contains(about, "~dev") || strings.Contains(about, "9.9.9") || strings.Contains(about, "Foreign") {
		t.Errorf("the package says:\n%s", about)
	}
}

// checkArchive unpacks the archive of `make dist`, and compares its program with what is beside it.
func checkArchive(t *testing.T, dist string) {
	t.Helper()
	output(t, exec.Command("sh", "-c", "cd "+dist+" && sha256sum -c *.sha256 && tar -xzf *.tar.gz"))
	bin := only(t, dist, "shaper-*/bin/shaper")
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(only(t, dist, "*.tar.gz")), "shaper-"), "-linux-amd64.tar.gz")
	if out := output(t, exec.Command(bin, "version")); !strings.HasPrefix(out, "shaper "+version+" ") {
		t.Errorf("the program of %s says: %s", version, out)
	}
	if out, err := exec.Command("ldd", bin).CombinedOutput(); err == nil {
		t.Errorf("the program is not static: %s", out)
	}
	var list struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version string }
	}
	text, err := os.ReadFile(only(t, dist, "*.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go"), "uplot 1.6.32"}
	for _, m := range info.Deps {
		want = append(want, m.Path+" "+m.Version)
	}
	var got []string
	for _, c := range list.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	if diff := cmp.Diff(want, got); diff != "" || list.Metadata.Component.Version != version || len(info.Deps) < 10 {
		t.Errorf("the list of components is of %q, and differs (-want +got):\n%s", list.Metadata.Component.Version, diff)
	}
}

// sums returns the hash of each file of a directory, by name.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, file := range filesUnder(t, dir) {
		text, err := os.ReadFile(dir + file)
		if err != nil {
			t.Fatal(err)
		}
		found[file] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return found
}

// only returns the only file of a directory that matches a pattern.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, dir, found, err)
	}
	return found[0]
}

// output runs a command and returns what it prints on its standard output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out, &faults)
	}
	return string(out)
}

// The policy of a package is legal, and shaper says that it shapes nothing. The scripts are those of
// a POSIX shell.
func TestPackagedPolicy(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(plain(), "check", "../packaging/shaper.toml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "so nothing is shaped") {
		t.Errorf("shaper check: %v\n%s", err, out)
	}
	for _, script := range []string{"build", "man5", "version", "postinst", "prerm", "postrm"} {
		if out, err := exec.Command("dash", "-n", "../packaging/"+script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}

// A release candidate sorts before its release, as dpkg and rpm sort.
func TestVersionOfPackages(t *testing.T) {
	t.Parallel()
	tree := treeWith(t, "version")
	git := func(args ...string) {
		t.Helper()
		output(t, exec.Command(tool(t, "git", "git"), append([]string{"-C", tree, "-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...))
	}
	if err := errors.Join(os.MkdirAll(tree+"/cmd/shaper", 0o755), os.WriteFile(tree+"/cmd/shaper/version.go", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	for _, step := range []struct{ tag, want string }{
		{"v1.3.0-rc1", "1.3.0~rc1"},
		{"", "1.3.0~rc1+1+g"},
		{"v1.3.0-beta.2", "1.3.0~beta.2"},
		{"v1.3.0", "1.3.0"},
		{"", "1.3.0+1+g"},
	} {
		if git("commit", "-q", "--allow-empty", "-m", "x"); step.tag != "" {
			git("tag", step.tag)
		}
		got := strings.TrimSpace(output(t, exec.Command("dash", tree+"/packaging/version")))
		if commit, ok := strings.CutPrefix(got, step.want); !ok || (commit == "") != (step.tag != "") {
			t.Errorf("with the tag %q the version is %s, want %s", step.tag, got, step.want)
		}
	}
}

// An image for another processor says so.
func TestImageHasItsPlatform(t *testing.T) {
	t.Parallel()
	tree := treeWith(t, "build")
	if err := os.WriteFile(tree+"/Makefile", []byte("install:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dash", tree+"/packaging/build", "image")
	cmd.Env = append(os.Environ(), "GO=false", "CONTAINER=echo", "ARCH=arm64", "VERSION=1.2.3", "SOURCE_DATE_EPOCH=0", "MAINTAINER=x", "MAKEFLAGS=")
	if got := output(t, cmd); !strings.HasPrefix(got, "build --platform linux/arm64 ") {
		t.Errorf("the image is built by: %s", got)
	}
}

// A service that does not stop does not keep its package from being removed.
func TestRemovalOfAServiceThatDoesNotStop(t *testing.T) {
	t.Parallel()
	tree := treeWith(t, "prerm")
	text, err := os.ReadFile(tree + "/packaging/prerm")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(string(text), "/run/systemd/system", tree, 1) // as if systemd ran
	for _, control := range []string{"systemctl", "deb-systemd-invoke"} {
		if err := os.WriteFile(tree+"/"+control, []byte("#!/bin/sh\necho \"$@\"\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"remove", "0"} { // dpkg, and rpm
		cmd := exec.Command("dash", "-c", script, "prerm", from)
		cmd.Env = append(os.Environ(), "PATH="+tree+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "stop shaper.service") {
			t.Errorf("prerm %s: %v\n%s", from, err, out)
		}
	}
}

// treeWith returns a directory that has one of the scripts of packaging/, and nothing else.
func treeWith(t *testing.T, script string) (tree string) {
	t.Helper()
	text, err := os.ReadFile("../packaging/" + script)
	if err != nil {
		t.Fatal(err)
	}
	tree = t.TempDir()
	if err := errors.Join(os.Mkdir(tree+"/packaging", 0o755), os.WriteFile(tree+"/packaging/"+script, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	return tree
}
