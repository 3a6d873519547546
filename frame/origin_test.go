package frame

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewOrigin(t *testing.T) {
	for _, c := range []struct{ scheme, authority, want string }{
		{"https", "api.example:443", "api.example"},
		{"http", "api.example:443", "api.example:443"},
		{"http", "api.example:80", "api.example"},
		{"https", "api.example:8443", "api.example:8443"},
		{"https", "api.example", "api.example"},
		{"https", "[2001:db8::1]:443", "[2001:db8::1]"},
		{"https", "[2001:db8::1]:8443", "[2001:db8::1]:8443"},
	} {
		o := NewOrigin(c.scheme, c.authority)
		if got := o.Authority(); got != c.want {
			t.Errorf("%s %s is %s, want %s", c.scheme, c.authority, got, c.want)
		}
	}
}

func TestRequestToOrigin(t *testing.T) {
	for _, c := range []struct{ head, want string }{
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"GET / HTTP/1.1\r\nX-Host: a\r\nhOST:a \t\r\nHosts: a\r\n\r\n", "GET / HTTP/1.1\r\nX-Host: a\r\nhOST:api.example \t\r\nHosts: a\r\n\r\n"},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost:api.example\r\n\r\n"},
		{"GET / HTTP/1.1\r\nHost:  \r\n\r\n", "GET / HTTP/1.1\r\nHost:  api.example\r\n\r\n"},
		{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost: api.example\r\n\r\n"},
		{"GET / HTTP/1.0\r\nA: b\r\n\r\n", "GET / HTTP/1.0\r\nHost: api.example\r\nA: b\r\n\r\n"},
		{"GET / HTTP/1.1\r\nA: b\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n\r\n"},
		{"GET http://a:1/b?c=http://d/ HTTP/1.1\r\nHost: a:1\r\n\r\n", "GET https://api.example/b?c=http://d/ HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"GET HTTPS://u@a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "GET https://u@api.example HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"GET ftp://a:1?x HTTP/1.1\r\nHost: a:1\r\n\r\n", "GET ftp://a:1?x HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"GET http:///x HTTP/1.1\r\nHost: a:1\r\n\r\n", "GET http:///x HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"GET /?u=http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET /?u=http://a/ HTTP/1.1\r\nHost: api.example\r\n\r\n"},
		{"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"},
		{"GET /chat HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			"GET /chat HTTP/1.1\r\nHost: api.example\r\nOrigin: http://a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
	} {
		o := NewOrigin("https", "api.example:443")
		got := o.AppendRequest(nil, []byte(c.head))
		if string(got) != c.want {
			t.Errorf("%q\nbecomes %q\n   want %q", c.head, got, c.want)
		}
		if len(got) > len(c.head)+o.Growth() {
			t.Errorf("%q grows by more than Growth, %d bytes", c.head, o.Growth())
		}
		if again := o.AppendRequest(nil, got); !bytes.Equal(again, got) {
			t.Errorf("%q becomes %q", got, again)
		}
	}
}

func TestRedirectToOrigin(t *testing.T) {
	for _, c := range []struct{ location, want string }{
		{"https://api.example/login?a=b#c", "/login?a=b#c"},
		{"HTTPS://API.example:443/login", "/login"},
		{"https://api.example:/login", "/login"},
		{"https://api.example", "/"},
		{"https://api.example?x", "/?x"},
		{"https://api.example#x", "/#x"},
		{"//api.example/login", "/login"},
		{"https://api.example//evil.example/", "/.//evil.example/"},
		{`https://api.example/\evil.example/`, `/./\evil.example/`},
		{"https://api.example/\t/evil.example/", "/./\t/evil.example/"},
		// These lead elsewhere, or already through the proxy.
		{"/login", "/login"},
		{"", ""},
		{"login", "login"},
		{"http://api.example/login", "http://api.example/login"},
		{"https://api.example:8443/", "https://api.example:8443/"},
		{"https://api.example.evil/", "https://api.example.evil/"},
		{"https://evil@api.example/", "https://evil@api.example/"},
		{`https://api.example\@evil.example/`, `https://api.example\@evil.example/`},
		{"https:/api.example/", "https:/api.example/"},
		{"https", "https"},
	} {
		o := NewOrigin("https", "api.example:443")
		for _, status := range []string{"302 Found", "201 Created", "308 "} {
			before, behind := "HTTP/1.1 "+status+"\r\nA: b\r\nlocation: ", " \r\nX-Location: https://api.example/\r\n\r\n"
			head := []byte(before + c.location + behind)
			if got, want := string(o.Redirect(head)), before+c.want+behind; got != want {
				t.Errorf("%q\nbecomes %q\n   want %q", c.location, got, want)
			}
		}
		head := "HTTP/1.1 200 OK\r\nLocation: " + c.location + "\r\n\r\n"
		if got := string(o.Redirect([]byte(head))); got != head {
			t.Errorf("%q becomes %q", head, got)
		}
	}
}

// Rewriting a request does not allocate if there is room; rewriting a response never does.
func TestOriginDoesNotAllocate(t *testing.T) {
	o := NewOrigin("https", "api.example:443")
	request := []byte("GET http://127.0.0.1:8080/ HTTP/1.1\r\nUser-Agent: x\r\nHost: 127.0.0.1:8080\r\n\r\n")
	room := make([]byte, 0, len(request)+o.Growth())
	response, copied := []byte("HTTP/1.1 302 Found\r\nLocation: https://api.example/x\r\n\r\n"), make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		o.AppendRequest(room, request)
		o.Redirect(copied[:copy(copied, response)])
	}); n > 0 {
		t.Errorf("it makes %v allocations", n)
	}
}

// FuzzOrigin: net/http reads the rewritten requests as the same requests, except for their
// host.
func FuzzOrigin(f *testing.F) { f.Fuzz(originIsAsked) }

func originIsAsked(t *testing.T, stream []byte) {
	if len(stream) > small {
		return
	}
	o := NewOrigin("https", "api.example:8443")
	var written []byte
	r := newReader(t, httpSettings, nil, stream)
	l := NewLink(httpSettings)
	r.scanner = up(r, l)
	sent := r.found
	r.found = func(m *Message) {
		head := stream[r.headBegins():r.passed]
		written = o.AppendRequest(written[:0], head)
		sameRequest(t, &o, head, written)
		sent(m)
	}
	for r.arrived < len(stream) && r.err == nil {
		r.read(1 << 30)
	}
}

// headBegins returns where the last message begins.
func (r *reader) headBegins() int64 {
	if n := len(r.records); n > 1 {
		return r.records[n-2].end
	}
	return 0
}

func sameRequest(t *testing.T, o *Origin, head, written []byte) {
	t.Helper()
	want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	got, errWritten := http.ReadRequest(bufio.NewReader(bytes.NewReader(written)))
	if (err == nil) != (errWritten == nil) && want != nil {
		t.Fatalf("%q: error %v; rewritten as %q: error %v", head, err, written, errWritten)
	}
	if err != nil {
		return
	}
	hosted := bytes.Contains(bytes.ToLower(head), []byte("\nhost:"))
	absolute := want.URL.Host != "" && (want.URL.Scheme == "http" || want.URL.Scheme == "https")
	switch {
	case want.Method == "CONNECT":
		if !bytes.Equal(head, written) {
			t.Fatalf("%q becomes %q", head, written)
		}
	case got.URL.Host != "" && !absolute: // a URI of another scheme
	case got.Host != o.Authority() && (hosted || want.ProtoMinor == 0 || absolute):
		t.Fatalf("%q asks for %s", written, got.Host)
	}
	if absolute && want.Method != "CONNECT" {
		want.URL.Scheme, want.URL.Host = "https", o.Authority()
	}
	differ := cmp.Diff([]any{want.Method, want.URL.String(), want.Proto, want.Header, want.ContentLength, want.TransferEncoding, want.Close},
		[]any{got.Method, got.URL.String(), got.Proto, got.Header, got.ContentLength, got.TransferEncoding, got.Close})
	if differ != "" {
		t.Fatalf("%q becomes %q:\n%s", head, written, differ)
	}
}

// FuzzRedirect: only Location changes in a response. For a client that has asked the origin,
// it leads to the same place.
func FuzzRedirect(f *testing.F) { f.Fuzz(redirectIsSame) }

func redirectIsSame(t *testing.T, location string) {
	if len(location) > small || badValue([]byte(location)) >= 0 {
		return
	}
	o := NewOrigin("https", "api.example:443")
	before, behind := "HTTP/1.1 302 Found\r\nA: b\r\nLocation:", "\r\nB: c\r\n\r\n"
	got := string(o.Redirect([]byte(before + location + behind)))
	if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, behind) {
		t.Fatalf("%q becomes %q", location, got)
	}
	written := strings.Trim(got[len(before):len(got)-len(behind)], " \t")
	location = strings.Trim(location, " \t")
	base, _ := url.Parse("https://api.example/some/where?x")
	want, err := base.Parse(location)
	if err != nil || written == location {
		return
	}
	to, err := base.Parse(written)
	if err != nil || to.Host != base.Host || to.EscapedPath() != orRoot(want.EscapedPath()) || to.RawQuery != want.RawQuery || to.Fragment != want.Fragment {
		t.Fatalf("%q leads to %v, and %q to %v, %v", location, want, written, to, err)
	}
}

func orRoot(path string) string {
	if path == "" {
		return "/"
	}
	return path
}
