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

// tools are the programs that are measured, and where they may write.
type tools struct {
	Dir     string // a new one, that everybody may read
	Shaper  tool
	Before  tool // shaper of the revision to compare with; zero: there is none
	HAProxy tool
	Nginx   tool
}

// tool is a program, or the reason why there is none.
type tool struct {
	Path    string
	Version string
	Missing string
}

// HAProxy limits bandwidth since 2.7, which is newer than what Debian 12 has.
// So that of Debian 13 is built, from the release that its package patches.
const (
	haproxySuite  = "trixie"
	haproxySource = "haproxy_3.0.11.orig.tar.gz"
	haproxySum    = "a133e2d550c5fd9a849b5c7ab17bb945bcdad209ca140d41f45ebf31943ae783"
)

// prepare builds shaper and gets the peers, or builds shaper of an earlier revision
// instead of them. What is built of peers once stays in the user's cache.
func prepare(earlier string) (t tools, err error) {
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
	if err := os.Chmod(t.Dir, 0o755); err != nil { // for what runs as nobody
		return t, err
	}
	t.Shaper = found(filepath.Join(t.Dir, "shaper"), buildShaper, shaperVersion)
	if t.Shaper.Missing != "" {
		return t, errors.New(t.Shaper.Missing)
	}
	if earlier != "" {
		if t.Before = revision(earlier, t.Dir); t.Before.Missing != "" {
			return t, errors.New(t.Before.Missing)
		}
		return t, nil
	}
	t.HAProxy = found(filepath.Join(cache, haproxySum[:16], "haproxy"), buildHAProxy, haproxyVersion)
	t.Nginx = found(filepath.Join(cache, "nginx", "usr", "sbin", "nginx"), fetchNginx, nginxVersion)
	return t, nil
}

// removeWhenInterrupted leaves nothing behind. The proxy that runs is ended by
// the kernel, see startProxy.
func removeWhenInterrupted(dir string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		for os.RemoveAll(dir) != nil { // a proxy was just about to start
		}
		os.Exit(1)
	}()
}

// found returns a tool that is there, or that could be made.
func found(path string, make func(path string) error, version func(path string) (string, error)) tool {
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

// buildHAProxy builds beside the place of the result, which is there only when
// it is whole.
func buildHAProxy(path string) error {
	work, err := os.MkdirTemp(filepath.Dir(filepath.Dir(path)), "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	source := filepath.Join(work, haproxySource)
	if err := debian(work, "source", "--download-only", "--tar-only", "haproxy/"+haproxySuite); err != nil {
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
		return fmt.Errorf("%s has the SHA-256 %s, not %s", filepath.Base(path), got, sum)
	}
	return nil
}

// fetchNginx unpacks the packages and does not install them: an installed
// nginx would serve port 80 of the machine.
func fetchNginx(path string) error {
	root := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	work, err := os.MkdirTemp(filepath.Dir(root), "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := debian(work, "download", "nginx", "libnginx-mod-stream"); err != nil {
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

// debian runs apt-get in a directory, with this machine's release of Debian
// and the sources of haproxySuite, from the mirror that the machine uses. It
// leaves the machine's own lists alone.
func debian(dir string, args ...string) error {
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
	status := filepath.Join(apt, "status") // what is installed plays no part
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
		"-o", "APT::Sandbox::User=root", // whose directories these are
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
	return "", errors.New("/etc/os-release has no VERSION_CODENAME: this is for Debian")
}

// mirrorOf returns where this machine gets a release from. It is asked of apt,
// whose sources are written in more than one way.
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
	return "", fmt.Errorf("apt has no source of %s", release)
}

func shaperVersion(string) (string, error) {
	out, err := command("", "git", "describe", "--always", "--dirty")
	if err != nil {
		return "not from git", nil
	}
	return strings.TrimSpace(out), nil
}

// haproxyVersion is the third word of "HAProxy version 3.0.11-9e587df 2025/06/02 - ...".
func haproxyVersion(path string) (string, error) {
	out, err := command("", path, "-v")
	if f := strings.Fields(out); err == nil && len(f) > 2 {
		return f[2], nil
	}
	return "", fmt.Errorf("haproxy -v: %v: %q", err, out)
}

// nginxVersion is what follows "nginx version: nginx/".
func nginxVersion(path string) (string, error) {
	out, err := command("", path, "-v")
	if _, version, ok := strings.Cut(out, "nginx/"); err == nil && ok {
		return strings.TrimSpace(version), nil
	}
	return "", fmt.Errorf("nginx -v: %v: %q", err, out)
}

// command runs one in a directory and returns what it prints.
func command(dir, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(out.String(), 5))
	}
	return out.String(), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}
