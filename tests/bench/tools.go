package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// tools holds the programs to measure, and a directory for their files.
type tools struct {
	Dir     string // temporary, readable by all
	Shaper  tool
	Before  tool // shaper of the earlier revision; zero: none
	HAProxy tool
	Nginx   tool
	Kannel  tool // its bearerbox
}

// tool is a program, or the reason why it is missing.
type tool struct {
	Path    string
	Version string
	Missing string
}

// HAProxy limits bandwidth since 2.7, and Debian 12 has an older one. So bench builds the
// release that Debian 13 packages, without Debian's patches.
const (
	haproxySuite  = "trixie"
	haproxySource = "haproxy_3.0.11.orig.tar.gz"
	haproxySum    = "a133e2d550c5fd9a849b5c7ab17bb945bcdad209ca140d41f45ebf31943ae783"
)

// prepare builds shaper, obtains HAProxy and nginx, and finds Kannel, if they are measured.
// If earlier is not "", it builds shaper of that revision instead of them. HAProxy and nginx stay in the user's cache directory. The
// caller removes t.Dir, even after an error.
func prepare(measured func(peer string) bool, earlier string) (t tools, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return t, err
	}
	cache = filepath.Join(cache, "shaper-bench")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return t, err
	}
	if t.Dir, err = os.MkdirTemp("", "shaper-bench"); err != nil {
		return t, err
	}
	removeWhenInterrupted(t.Dir)
	if err := os.Chmod(t.Dir, 0o755); err != nil { // a proxy may run as nobody
		return t, err
	}
	t.Shaper = obtain(filepath.Join(t.Dir, "shaper"), buildShaper, shaperVersion)
	if t.Shaper.Missing != "" {
		return t, errors.New(t.Shaper.Missing)
	}
	if earlier != "" {
		if t.Before = revision(earlier, t.Dir); t.Before.Missing != "" {
			return t, errors.New(t.Before.Missing)
		}
		return t, nil
	}
	wanted := func(peer, path string, make func(string) error, version func(string) (string, error)) tool {
		if !measured(peer) {
			return tool{Missing: "not asked for"}
		}
		return obtain(path, make, version)
	}
	t.HAProxy = wanted("haproxy", filepath.Join(cache, haproxySum[:16], "haproxy"), buildHAProxy, haproxyVersion)
	t.Nginx = wanted("nginx", filepath.Join(cache, "nginx", "usr", "sbin", "nginx"), fetchNginx, nginxVersion)
	t.Kannel = wanted("kannel", "/usr/sbin/bearerbox", func(string) error { return errors.New("the package kannel of Debian is not installed") }, kannelVersion)
	return t, nil
}

// removeWhenInterrupted removes dir and exits on SIGINT and SIGTERM. The kernel ends the proxy
// (Pdeathsig in startProxy).
func removeWhenInterrupted(dir string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		for os.RemoveAll(dir) != nil { // a proxy may be starting in it
		}
		os.Exit(1)
	}()
}

// obtain returns the tool at path. If the file does not exist, it calls make first.
func obtain(path string, make func(path string) error, version func(path string) (string, error)) tool {
	var err error
	if _, missing := os.Stat(path); missing != nil {
		fmt.Fprintln(os.Stderr, "preparing", filepath.Base(path))
		err = make(path)
	}
	t := tool{Path: path}
	if err == nil {
		t.Version, err = version(path)
	}
	if err != nil {
		t.Missing = err.Error()
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(path), err)
	}
	return t
}

func buildShaper(path string) error {
	_, err := command("", "go", "build", "-o", path, "./cmd/shaper")
	return err
}

// revision builds shaper of a revision of this repository.
func revision(rev, dir string) tool {
	path := filepath.Join(dir, "before")
	return obtain(path, func(path string) error { return buildRevision(rev, path) }, func(string) (string, error) {
		version, err := command("", "git", "describe", "--always", rev)
		return strings.TrimSpace(version), err
	})
}

func buildRevision(rev, path string) error {
	tree := path + ".tree"
	if _, err := command("", "git", "worktree", "add", "--detach", tree, rev); err != nil {
		return err
	}
	defer command("", "git", "worktree", "remove", "--force", tree)
	_, err := command(tree, "go", "build", "-o", path, "./cmd/shaper")
	return err
}

// buildHAProxy builds in a temporary directory, and then moves the program to path: an
// interrupted build leaves no file there.
func buildHAProxy(path string) error {
	work, err := os.MkdirTemp(filepath.Dir(filepath.Dir(path)), "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	source := filepath.Join(work, haproxySource)
	if err := aptGet(work, "source", "--download-only", "--tar-only", "haproxy/"+haproxySuite); err != nil {
		return err
	}
	if err := verify(source, haproxySum); err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if _, err := command(tree, "tar", "xzf", source, "--strip-components=1"); err != nil {
		return err
	}
	if _, err := command(tree, "make", "-j", "TARGET=linux-glibc", "haproxy"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tree, "haproxy"), path)
}

func verify(path, sum string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("%s has SHA-256 %s, want %s", filepath.Base(path), got, sum)
	}
	return nil
}

// fetchNginx unpacks Debian's packages of nginx without installing them. An installed nginx
// would serve port 80 of the machine.
func fetchNginx(path string) error {
	root := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	work, err := os.MkdirTemp(filepath.Dir(root), "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := aptGet(work, "download", "nginx", "libnginx-mod-stream"); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	for _, p := range packages {
		if _, err := command(work, "dpkg", "-x", p, tree); err != nil {
			return err
		}
	}
	return os.Rename(tree, root)
}

// aptGet runs apt-get in dir, with the packages of this machine's Debian release and the
// sources of haproxySuite, from the machine's mirror. It does not touch the machine's own lists.
func aptGet(dir string, args ...string) error {
	release, err := osRelease()
	if err != nil {
		return err
	}
	mirror, err := mirrorOf(release)
	if err != nil {
		return err
	}
	list := fmt.Sprintf("deb %[1]s %[2]s %[3]s main\ndeb-src %[1]s %[2]s %[4]s main\n",
		"[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", mirror, release, haproxySuite)
	apt := filepath.Join(dir, "apt")
	if err := os.MkdirAll(filepath.Join(apt, "lists", "partial"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(apt, "sources.list"), []byte(list), 0o644); err != nil {
		return err
	}
	status := filepath.Join(apt, "status") // empty: installed packages do not matter
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return err
	}
	options := []string{
		"-q",
		"-o", "Dir::Etc::SourceList=" + filepath.Join(apt, "sources.list"),
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::status=" + status,
		"-o", "Dir::State::Lists=" + filepath.Join(apt, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(apt, "cache"),
		"-o", "APT::Sandbox::User=root", // the directories belong to root
	}
	if _, err := command(dir, "apt-get", append(options, "update")...); err != nil {
		return err
	}
	_, err = command(dir, "apt-get", append(options, args...)...)
	return err
}

// osRelease returns the code name of this machine's release.
func osRelease() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return name, nil
		}
	}
	return "", errors.New("/etc/os-release has no VERSION_CODENAME: bench needs Debian")
}

// mirrorOf returns the mirror that this machine uses for a release. It asks apt, whose
// configuration has more than one format.
func mirrorOf(release string) (string, error) {
	out, err := command("", "apt-get", "update", "--print-uris")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		uri, _, _ := strings.Cut(strings.TrimPrefix(line, "'"), "'")
		if mirror, ok := strings.CutSuffix(uri, "/dists/"+release+"/InRelease"); ok {
			return mirror, nil
		}
	}
	return "", fmt.Errorf("apt has no source for %s", release)
}

func shaperVersion(string) (string, error) {
	out, err := command("", "git", "describe", "--always", "--dirty")
	if err != nil {
		return "not from git", nil
	}
	return strings.TrimSpace(out), nil
}

// haproxyVersion returns the third word of "HAProxy version 3.0.11-9e587df 2025/06/02 - ...".
func haproxyVersion(path string) (string, error) {
	out, err := command("", path, "-v")
	if f := strings.Fields(out); err == nil && len(f) > 2 {
		return f[2], nil
	}
	return "", fmt.Errorf("haproxy -v: %v: %q", err, out)
}

// nginxVersion returns what follows "nginx version: nginx/".
func nginxVersion(path string) (string, error) {
	out, err := command("", path, "-v")
	if _, version, ok := strings.Cut(out, "nginx/"); err == nil && ok {
		return strings.TrimSpace(version), nil
	}
	return "", fmt.Errorf("nginx -v: %v: %q", err, out)
}

// kannelVersion returns what follows "Kannel bearerbox version " in the first line.
func kannelVersion(path string) (string, error) {
	out, err := command("", path, "--version")
	if _, version, ok := strings.Cut(out, "version `"); err == nil && ok {
		version, _, _ = strings.Cut(version, "'")
		return version, nil
	}
	return "", fmt.Errorf("bearerbox --version: %v: %q", err, out)
}

// command runs a program in dir ("": the current directory), and returns what it prints.
func command(dir, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(out.String(), 5))
	}
	return out.String(), nil
}
