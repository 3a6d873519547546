package entry

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// told returns what a header with these addresses tells.
func told(source, destination string) Proxy {
	return Proxy{netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination)}
}

// v2 returns a header of version 2 with these bytes after its length.
func v2(command, family byte, rest string) string {
	return string(signature) + string([]byte{command, family, byte(len(rest) >> 8), byte(len(rest))}) + rest
}

const (
	ipv4 = "\xcb\x00\x71\x05\xc6\x33\x64\x07\x30\x39\x00\x50"
	tlv  = "\x20\x00\x05hello\x04\x00\x00"
)

var (
	ipv6 = "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x02\x00\x01\xff\xff"
	four = told("203.0.113.5:12345", "198.51.100.7:80")
	six  = told("[2001:db8::1]:1", "[2001:db8::2]:65535")
)

// headers are valid headers.
var headers = []struct {
	text string
	want Proxy
}{
	{"PROXY TCP4 203.0.113.5 198.51.100.7 12345 80\r\n", four},
	{"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n", six},
	{"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		told("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")},
	{"PROXY TCP6 ::ffff:203.0.113.5 ::ffff:198.51.100.7 12345 80\r\n", four},
	{"PROXY UNKNOWN\r\n", Proxy{}},
	{"PROXY UNKNOWN whatever it is\r\n", Proxy{}},
	{v2(0x21, 0x11, ipv4), four},
	{v2(0x21, 0x12, ipv4), four},
	{v2(0x21, 0x21, ipv6), six},
	{v2(0x21, 0x11, ipv4+tlv), four},
	{v2(0x21, 0x11, ipv4+strings.Repeat("x", MaxProxy-16-12)), four},
	{v2(0x20, 0x11, ipv4), Proxy{}},
	{v2(0x20, 0x00, ""), Proxy{}},
	{v2(0x21, 0x00, tlv), Proxy{}},
	{v2(0x21, 0x10, ipv4), Proxy{}},
	{v2(0x21, 0x31, strings.Repeat("/", 216)), Proxy{}},
}

// A header is read whole, whatever follows it, and not before all of it is there.
func TestProxyHeaders(t *testing.T) {
	for _, c := range headers {
		for cut := range len(c.text) {
			if h, n, err := ParseProxy([]byte(c.text[:cut])); h != (Proxy{}) || n != 0 || err != nil {
				t.Errorf("%q: %v, %d, %v, want that more is needed", c.text[:cut], h, n, err)
			}
		}
		for _, rest := range []string{"", "GET / HTTP/1.1\r\n", "PROXY UNKNOWN\r\n"} {
			if h, n, err := ParseProxy([]byte(c.text + rest)); h != c.want || n != len(c.text) || err != nil {
				t.Errorf("%q: %v, %d, %v, want %v and %d", c.text+rest, h, n, err, c.want, len(c.text))
			}
		}
	}
}

// What is no header is refused, as soon as that is certain.
func TestBadProxyHeaders(t *testing.T) {
	for _, text := range []string{
		"G", "GET / HTTP/1.1\r\n", "\x16\x03\x01", "proxy TCP4 203.0.113.5 198.51.100.7 12345 80\r\n", "PROXY\r\n",
		"PROXY TCP4\r\n", "PROXY \r\n", "PROXY  TCP4 203.0.113.5 198.51.100.7 12345 80\r\n", "PROXY TCP4 203.0.113.5 198.51.100.7 12345 80 \r\n",
		"PROXY TCP4 203.0.113.5 198.51.100.7 12345\r\n", "PROXY TCP4 203.0.113.5 198.51.100.7 65536 80\r\n", "PROXY TCP4 203.0.113.5 198.51.100.7 012 80\r\n",
		"PROXY TCP4 203.0.113.5 198.51.100.7 -1 80\r\n", "PROXY TCP4 203.0.113.5 198.51.100.7 +1 80\r\n", "PROXY TCP4 203.0.113.05 198.51.100.7 1 80\r\n",
		"PROXY TCP4 2001:db8::1 2001:db8::2 1 1\r\n", "PROXY TCP6 203.0.113.5 198.51.100.7 12345 80\r\n", "PROXY TCP6 fe80::1%eth0 fe80::2 1 1\r\n",
		"PROXY UDP4 203.0.113.5 198.51.100.7 12345 80\r\n", "PROXY TCP4 localhost 198.51.100.7 12345 80\r\n",
		"PROXY UNKNOWN" + strings.Repeat(" ", 93) + "\n", "PROXY TCP4 " + strings.Repeat("1", 96),
		v2(0x22, 0x11, ipv4), v2(0x11, 0x11, ipv4), v2(0x21, 0x41, ipv4), v2(0x21, 0x13, ipv4), v2(0x21, 0x11, ipv4[1:]), v2(0x21, 0x21, ipv4), v2(0x21, 0x31, ipv6),
		v2(0x21, 0x11, strings.Repeat("x", MaxProxy-15)), v2(0x20, 0x00, strings.Repeat("x", 65535)),
		string(signature[:11]) + "x",
	} {
		if h, n, err := ParseProxy([]byte(text)); h != (Proxy{}) || n != 0 || err == nil {
			t.Errorf("%q: %v, %d, %v, want an error", text, h, n, err)
		}
	}
}

// What we send is what we read. Addresses of two families are told as IPv6, unknown ones not at
// all.
func TestAppendProxy(t *testing.T) {
	mixed := told("203.0.113.5:1", "[2001:db8::2]:2")
	for _, c := range []struct {
		tell, want Proxy
		line       string
	}{
		{four, four, "PROXY TCP4 203.0.113.5 198.51.100.7 12345 80\r\n"},
		{six, six, "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n"},
		{mixed, mixed, "PROXY TCP6 ::ffff:203.0.113.5 2001:db8::2 1 2\r\n"},
		{told("[fe80::1%eth0]:1", "[fe80::2]:2"), told("[fe80::1]:1", "[fe80::2]:2"), "PROXY TCP6 fe80::1 fe80::2 1 2\r\n"},
		{Proxy{Source: four.Source}, Proxy{}, "PROXY UNKNOWN\r\n"},
		{Proxy{}, Proxy{}, "PROXY UNKNOWN\r\n"},
	} {
		if line := string(c.tell.AppendLine(nil)); line != c.line {
			t.Errorf("%v: %q, want %q", c.tell, line, c.line)
		}
		for _, text := range [][]byte{c.tell.AppendLine(nil), c.tell.AppendBinary(nil, false), c.tell.AppendBinary(nil, true)} {
			if h, n, err := ParseProxy(text); h != c.want || n != len(text) || err != nil {
				t.Errorf("%q is read as %v, %d, %v", text, h, n, err)
			}
		}
	}
	if got := string(four.AppendBinary([]byte("x"), true)); got != "x"+v2(0x21, 0x12, ipv4) {
		t.Errorf("for datagrams: %q", got)
	}
}

// Whatever comes, a parser uses no more than there is, and no more than its bound. It decides
// the same when bytes come one by one, and what it has read can be told on.
func FuzzProxy(f *testing.F) {
	for _, c := range headers {
		f.Add([]byte(c.text + "more"))
	}
	f.Add([]byte(v2(0x21, 0x21, ipv4)))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept := bytes.Clone(data)
		h, n, err := ParseProxy(data)
		if !bytes.Equal(data, kept) || n > len(data) || n > MaxProxy || err != nil && n > 0 || n == 0 && h != (Proxy{}) {
			t.Fatalf("%q: %v, %d, %v", data, h, n, err)
		}
		if n == 0 && err == nil && len(data) >= MaxProxy {
			t.Fatalf("%d bytes are no header, and not enough", len(data))
		}
		for cut := range min(len(data), 300) {
			if _, early, bad := ParseProxy(data[:cut]); early > 0 && (early != n || cut < n) || bad != nil && err == nil {
				t.Fatalf("the first %d of %q: %d, %v; all of them: %d, %v", cut, data, early, bad, n, err)
			}
		}
		if n > 0 {
			if again, _, err := ParseProxy(h.AppendBinary(nil, false)); again != h && h.Source.IsValid() || err != nil {
				t.Fatalf("%v is told as %v, %v", h, again, err)
			}
		}
	})
}
