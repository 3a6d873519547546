package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/state"
	"shaper/tests/trial"
)

// writePair writes a self-signed certificate and its key.
func writePair(t *testing.T, dir, name string, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, name+".pem"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(dir, name+".key"), "PRIVATE KEY", secret)
}

func writePEM(t *testing.T, path, kind string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secureBase returns the base policy with more lines in the section of listener quick. The first
// of them is line 19.
func secureBase(lines ...string) string {
	return strings.Replace(base, "class = \"fast\"\n", "class = \"fast\"\n"+strings.Join(lines, "\n")+"\n", 1)
}

// CheckFiles returns an error for each file that cannot be used, with its place in the policy.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "good", time.Now().Add(time.Hour))
	writePair(t, dir, "other", time.Now().Add(time.Hour))
	writePair(t, dir, "old", time.Now().Add(-time.Hour))
	os.WriteFile(filepath.Join(dir, "text.pem"), []byte("no PEM\n"), 0o600)
	writePEM(t, filepath.Join(dir, "secret.key"), "ENCRYPTED PRIVATE KEY", []byte("nonsense"))
	const oldSecret = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
	os.WriteFile(filepath.Join(dir, "oldsecret.key"), []byte(oldSecret), 0o600)
	writePEM(t, filepath.Join(dir, "broken.pem"), "CERTIFICATE", []byte("nonsense"))
	os.Mkdir(filepath.Join(dir, "dir.pem"), 0o700)
	if err := os.WriteFile(filepath.Join(dir, "large.pem"), make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		line string
		want []string // the errors without the policy file; DIR stands for the directory
		warn string
	}{
		"all is good": {`tls = { cert = "good.pem", key = "good.key", client_ca = "other.pem" }`, nil, ""},
		"two are missing": {`tls = { cert = "none.pem", key = "none.key" }`, []string{
			`:19:16: listener.quick.tls.cert: open DIR/none.pem: no such file or directory; ` + needsFile,
			`:19:34: listener.quick.tls.key: in DIR: no such file or directory; ` + needsFile}, ""},
		"the key is another's": {`tls = { cert = "good.pem", key = "other.key" }`, []string{
			`:19:34: listener.quick.tls.key: DIR/other.key: tls: private key does not match public key; ` + needsPEM}, ""},
		"the key is not a key": {`tls = { cert = "good.pem", key = "text.pem" }`, []string{
			`:19:34: listener.quick.tls.key: DIR/text.pem: tls: failed to find any PEM data in key input; ` + needsPEM}, ""},
		"the key is encrypted": {`tls = { cert = "good.pem", key = "secret.key" }`, []string{
			`:19:34: listener.quick.tls.key: DIR/secret.key: it is encrypted, and shaper has no password; "openssl pkey -in DIR/secret.key" prints it decrypted; ` + needsPEM}, ""},
		"the key is encrypted in the old form": {`tls = { cert = "good.pem", key = "oldsecret.key" }`, []string{
			`:19:34: listener.quick.tls.key: DIR/oldsecret.key: it is encrypted, and shaper has no password; "openssl pkey -in DIR/oldsecret.key" prints it decrypted; ` + needsPEM}, ""},
		"the authority is not a certificate": {`tls = { cert = "good.pem", key = "good.key", client_ca = "text.pem" }`, []string{
			`:19:58: listener.quick.tls.client_ca: DIR/text.pem: there is no certificate in it; ` + needsPEM}, ""},
		"the certificate is broken": {`tls = { cert = "broken.pem", key = "good.key" }`, []string{
			`:19:16: listener.quick.tls.cert: DIR/broken.pem: certificate 1: x509: malformed certificate; ` + needsPEM}, ""},
		"it is a directory": {`tls = { cert = "dir.pem", key = "good.key" }`, []string{
			`:19:16: listener.quick.tls.cert: read DIR/dir.pem: it is not a regular file; ` + needsPEM}, ""},
		"it is large": {`tls = { cert = "large.pem", key = "good.key" }`, []string{
			`:19:16: listener.quick.tls.cert: read DIR/large.pem: it is larger than 4MiB; ` + needsPEM}, ""},
		"the certificate is old": {`tls = { cert = "old.pem", key = "old.key" }`, nil, "the certificate has expired, on "},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, err := policy.Parse(filepath.Join(dir, "p.toml"), []byte(secureBase(c.line)))
			if err != nil {
				t.Fatal(err)
			}
			warnings, err := CheckFiles(p)
			var want string
			for _, line := range c.want {
				want += p.Path + strings.ReplaceAll(line, "DIR", dir) + "\n"
			}
			if got := errorText(err); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			if (c.warn == "") != (len(warnings) == 0) || !strings.Contains(warnings.Error(), c.warn) {
				t.Errorf("the warnings are %v, want %q", warnings, c.warn)
			}
		})
	}
}

// If an operator writes a secret in place of its path, no error repeats it. An error says which
// directory was found, and what the key wants.
func TestSecretsInPlaceOfPaths(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "good", time.Now().Add(time.Hour))
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("hunter2", 50)
	for value, where := range map[string]string{
		"hunter2":               "in DIR: no such file or directory; ",
		"me:$2y$10$hunter2":     "in DIR: no such file or directory; ",
		"line\nhunter2\n":       "in DIR: no such file or directory; ",
		"hunter2/hunter2==":     "in DIR: no such file or directory; ",
		"/hunter2/hunter2":      "in /: no such file or directory; ",
		long:                    "in DIR: file name too long; ",
		"sub/hunter2":           "in DIR/sub: no such file or directory; ",
		"good.pem/hunter2":      "in DIR/good.pem: not a directory; ",
		dir + "/sub/../hunter2": "in DIR: no such file or directory; ",
	} {
		quoted := strconv.Quote(value)
		text := secureBase(`tls = { cert = "good.pem", key = `+quoted+` }`, `upstream_tls = { cert = "good.pem", key = `+quoted+` }`) +
			"[class.shared]\nrate = \"1 messages/s\"\nshared = \"f\"\n[listener.web]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = \"echo:\"\nclass = \"shared\"\n" +
			"[listener.entry]\nlisten = \"127.0.0.1:0\"\nmode = \"connect\"\nallow = \"*:443\"\nclass = \"fast\"\nusers = " + quoted + "\n" +
			"[fleet.f]\naddress = \"127.0.0.1:1\"\npassword_file = " + quoted + "\nsentinel = \"main\"\nsentinel_password_file = " + quoted + "\ntls = { cert = \"good.pem\", key = " + quoted + " }\n"
		p, _, err := policy.Parse(filepath.Join(dir, "p.toml"), []byte(strings.Replace(text, `"echo:"`, `"192.0.2.1:80"`, 2)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = CheckFiles(p)
		where := strings.ReplaceAll(where, "DIR", dir)
		if got := errorText(err); strings.Contains(got, "hunter2") || strings.Count(got, where) != 6 || strings.Count(got, "\n") != 6 {
			t.Errorf("%q: want 6 errors %q, got\n%s", value, where, got)
		}
		for _, want := range []string{".tls.key: " + where + needsFile, "upstream_tls.key: " + where + needsFile, "users: " + where + needsUsers, "fleet.f.password_file: " + where + needsPassword, "sentinel_password_file: " + where + needsPassword} {
			if !strings.Contains(errorText(err), want) {
				t.Errorf("%q: want %q, got\n%v", value, want, err)
			}
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + "\n"
}

// CheckFiles says of a state file what a start would say. A directory that is missing may be made until then.
func TestCheckStateFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/users", []byte("me:$2y$10$x\nyou:$2y$10$y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{ // a warning, and an error
		dir + "/state": {},
		dir + "/users": {"", "p.toml:2:9: daemon.state: open " + dir + "/users: it is a text and no state file, and shaper leaves it alone; " + needsStateFile},
		dir + "/no/st": {"p.toml:2:9: daemon.state: write to " + dir + "/no: no such file or directory; " + needsStateDir},
		dir:            {"", "p.toml:2:9: daemon.state: open " + dir + ": it is not a regular file; " + needsStateFile},
	} {
		p, _, err := policy.Parse("p.toml", []byte("[daemon]\nstate = \""+path+"\"\n[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \"127.0.0.1:0\"\nupstream = \"echo:\"\nclass = \"a\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := CheckFiles(p)
		said := [2]string{warnings.Error()}
		if err != nil {
			said[1] = err.Error()
		}
		if said != want {
			t.Errorf("%s: it says %q, want %q", path, said, want)
		}
	}
}

// A state file that may not be read is at fault itself, and not its directory: a start says so, and CheckFiles warns.
func TestStateFileWithoutPermission(t *testing.T) {
	obeyModes(t)
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Parse("p.toml", []byte(strings.Replace(base, "[daemon]\n", "[daemon]\nstate = \""+path+"\"\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := CheckFiles(p)
	if want := "p.toml:2:9: daemon.state: open " + path + ": permission denied, so it is not checked; " + needsOwnFile; err != nil || warnings.Error() != want {
		t.Errorf("error %v, warnings %v, want %s", err, warnings, want)
	}
	_, err = state.Open(path, state.Options{})
	u := &unusable{policy: p}
	if u.add("daemon.state", err); CodeOf(u) != CodeFailed || u.errs[0].Allowed != needsOwnFile {
		t.Errorf("the error %v has code %v", u, CodeOf(u))
	}
}

// A file that CheckFiles may not read is not checked. A warning says so.
func TestCheckFilesWithoutPermission(t *testing.T) {
	obeyModes(t)
	dir := t.TempDir()
	writePair(t, dir, "good", time.Now().Add(time.Hour))
	os.Chmod(filepath.Join(dir, "good.key"), 0)
	p, _, err := policy.Parse(filepath.Join(dir, "p.toml"), []byte(secureBase(`tls = { cert = "good.pem", key = "good.key" }`)))
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := CheckFiles(p)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Problem, "permission denied, so it is not checked") {
		t.Errorf("error %v, warnings %v", err, warnings)
	}
}

// obeyModes takes from this thread the right of root to read files whatever their mode is. The thread
// stays with the goroutine of the test, and ends with it.
func obeyModes(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	has[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
}

// A key that shaper may not read fails the start like any file that cannot be used: systemd starts shaper
// again, and once somebody has mended the permissions it runs.
func TestKeyWithoutPermission(t *testing.T) {
	u := &unusable{policy: &policy.Policy{}}
	u.add("listener.l.tls.key", &fs.PathError{Op: "open", Path: "/k", Err: fs.ErrPermission})
	if CodeOf(u) != CodeFailed || u.errs[0].Allowed != needsReading {
		t.Errorf("the error %v has code %v", u, CodeOf(u))
	}
}

// A reload reads the certificates again even if the policy is the same. If one cannot be used,
// the old ones stay.
func TestReloadReadsCertificates(t *testing.T) {
	p := begin(t, base)
	dir := filepath.Dir(p.path)
	writePair(t, dir, "one", time.Now().Add(time.Hour))
	text := secureBase(`tls = { cert = "one.pem", key = "one.key" }`)
	p.write(text)
	if _, err := p.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		c, err := tls.Dial("tcp", p.address("quick"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	writePair(t, dir, "two", time.Now().Add(time.Hour))
	swap := func(kind string) {
		if err := os.Rename(filepath.Join(dir, "two."+kind), filepath.Join(dir, "one."+kind)); err != nil {
			t.Fatal(err)
		}
	}
	swap("pem")
	if _, err := p.Reload(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "private key does not match") {
		t.Errorf("a reload with a key of another certificate returns %v", err)
	}
	if got := serial(); got != "one" {
		t.Errorf("after a failed reload the certificate is %s, want one", got)
	}
	swap("key")
	if _, err := p.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != "two" {
		t.Errorf("after the reload the certificate is %s, want two", got)
	}
}

// Run fails if a TLS file cannot be used.
func TestStartWithoutAuthority(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "shaper.toml")
	text := strings.NewReplacer("echo:", "127.0.0.1:1").Replace(secureBase(`upstream_tls = { ca = "none.pem" }`))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, log := trial.NewLog()
	err := Run(Options{Path: path, Log: log})
	want := path + ":19:23: listener.quick.upstream_tls.ca: open " + filepath.Dir(path) + "/none.pem: no such file or directory; " + needsFile
	if err == nil || err.Error() != want || CodeOf(err) != CodeFailed {
		t.Errorf("it failed with\n%v, want\n%s", err, want)
	}
}

// The files of a fleet are read once. Of two readings, one could be of a renewed certificate: then a reload
// would take the old one, which is in use, for the new one, and keep it.
func TestFilesOfAFleetAreReadOnce(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "good", time.Now().Add(time.Hour))
	ca := filepath.Join(dir, "ca.pem")
	if err := os.Link(filepath.Join(dir, "good.pem"), ca); err != nil {
		t.Fatal(err)
	}
	f := policy.Fleet{Name: "f", TLS: &policy.ClientTLS{CA: ca, Cert: filepath.Join(dir, "good.pem"), Key: filepath.Join(dir, "good.key")}}
	opened := opensIn(t, dir)
	first, _, err := readStore(f)
	if err != nil {
		t.Fatal(err)
	}
	if got := opened(); got != 3 {
		t.Errorf("three files were opened %d times", got)
	}
	writePair(t, dir, "good", time.Now().Add(time.Hour)) // through the link it is the authority, too
	if next, _, err := readStore(f); err != nil || next.same(&first) {
		t.Errorf("with another certificate it is the same store: %v", err)
	}
}

// opensIn returns a function that returns how often somebody has opened a file in a directory since then.
func opensIn(t *testing.T, dir string) (opened func() int) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() (count int) {
		events := make([]byte, 4096)
		n, err := unix.Read(fd, events)
		if err != nil {
			t.Fatal(err)
		}
		for events = events[:n]; len(events) > 0; count++ {
			name := binary.NativeEndian.Uint32(events[unix.SizeofInotifyEvent-4:]) // its length
			events = events[unix.SizeofInotifyEvent+name:]
		}
		return count
	}
}
