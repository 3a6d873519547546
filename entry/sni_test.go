package entry

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
)

// helloFor returns the ClientHello of a client that asks for a name.
func helloFor(t testing.TB, name string) string {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(ours, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	return string(head) + string(body)
}

// inRecords splits a ClientHello into records of a size.
func inRecords(hello string, size int) string {
	var b strings.Builder
	for rest := hello[recordHeader:]; rest != ""; {
		n := min(size, len(rest))
		b.WriteString(hello[:3] + string([]byte{byte(n >> 8), byte(n)}) + rest[:n])
		rest = rest[n:]
	}
	return b.String()
}

// The name is found in any pieces and over any records, and nothing is used.
func TestSNI(t *testing.T) {
	hello := helloFor(t, "API.example")
	for _, said := range []string{hello, inRecords(hello, 2), inRecords(hello, 3), inRecords(hello, 100), hello + "more"} {
		for cut := range len(said) {
			used, step, err := (&SNI{Port: 443}).Feed([]byte(said[:cut]))
			if done := !step.IsZero(); used != 0 || err != nil || done && step.To.String() != "api.example:443" || done && cut < len(strings.TrimSuffix(said, "more")) {
				t.Fatalf("after %d of %d bytes: %d, %+v, %v", cut, len(said), used, step, err)
			}
		}
		if _, step, err := (&SNI{Port: 443}).Feed([]byte(said)); step.To.String() != "api.example:443" || err != nil {
			t.Errorf("%+v, %v", step, err)
		}
	}
}

// What is no ClientHello, or names no server in the one way that a name is written, is refused.
func TestBadSNI(t *testing.T) {
	named := helloFor(t, "abcdefgh.example")
	for said, want := range map[string]error{
		"GET / HTTP/1.1\r\n\r\n": errTLS, "\x16\x02": errTLS, "\x16\x03\x01\x00\x00": errTLS, "\x16\x03\x01\x40\x01": errTLS, "\x16\x03\x01\x00\x04\x02\x00\x00\x00": errTLS,
		"\x16\x03\x01\x00\x04\x01\x01\x00\x00": errLong, "\x16\x03\x01\x00\x04\x01\x00\x00\x00": errNoName,
		helloFor(t, ""): errNoName, helloFor(t, "127.0.0.1"): errNoName,
		strings.Replace(named, "abcdefgh.example", "127.000.000.0001", 1): errNoName, strings.Replace(named, "abcdefgh.example", "abcdefgh/example", 1): errNoName,
		strings.Replace(named, "abcdefgh.example", "abcdefgh.exam\x00le", 1):              errNoName,
		strings.Replace(named, "\x00\x10abcdefgh.example", "\x00\x11abcdefgh.example", 1): errNoName,
		"\x16\x03\x01\x3f\xff\x01\x00\x20\x00" + strings.Repeat("x", MaxEntry):            errLong,
	} {
		used, step, err := (&SNI{Port: 443}).Feed([]byte(said))
		if used != 0 || err != want || step.To != (Destination{}) || (want == errNoName) != (string(step.Reply) == alertUnnamed) {
			t.Errorf("%.40q: %d, %+v, %v, want %v", said, used, step, err, want)
		}
	}
}

// Whatever comes, SNI uses nothing, and finds a name only if it is a destination.
func FuzzSNI(f *testing.F) {
	hello := helloFor(f, "api.example")
	f.Add([]byte(hello))
	f.Add([]byte(inRecords(hello, 50)))
	f.Fuzz(func(t *testing.T, said []byte) {
		kept := string(said)
		used, step, err := (&SNI{Port: 443}).Feed(said)
		if used != 0 || string(said) != kept || err != nil && step.To != (Destination{}) {
			t.Fatalf("%d, %+v, %v", used, step, err)
		}
		if again, ok := DestinationOf(step.To.Name, 443); !step.IsZero() && err == nil && (!ok || again != step.To) {
			t.Fatalf("%v is not a destination", step.To)
		}
	})
}
