package entry

import (
	"net/netip"
	"strings"
	"testing"
)

// A client asks for a relay, and says where it will send from, if it knows.
func TestRelayRequests(t *testing.T) {
	for said, want := range map[string]netip.AddrPort{
		"\x01\x00\x00\x00\x00\x00\x00":                                           netip.MustParseAddrPort("0.0.0.0:0"),
		"\x01\xc0\x00\x02\x07\x10\x00":                                           netip.MustParseAddrPort("192.0.2.7:4096"),
		"\x04" + strings.Repeat("\x00", 10) + "\xff\xff\xc0\x00\x02\x07\x10\x00": netip.MustParseAddrPort("192.0.2.7:4096"),
		"\x03\x04test\x10\x00":                                                   netip.AddrPortFrom(netip.Addr{}, 4096),
	} {
		e := &SOCKS5{Datagrams: true}
		if _, step, err := e.Feed([]byte("\x05\x01\x00")); string(step.Reply) != "\x05\x00" || err != nil {
			t.Fatal(step, err)
		}
		for n := range len(said) + 3 {
			if used, step, err := e.Feed([]byte("\x05\x03\x00" + said)[:n]); used != 0 || !step.IsZero() || err != nil {
				t.Fatalf("%q needs only %d bytes: %+v, %v", said, n, step, err)
			}
		}
		used, step, err := e.Feed([]byte("\x05\x03\x00" + said + "more"))
		if used != 3+len(said) || !step.Relay || step.From != want || step.IsZero() || err != nil {
			t.Errorf("%q: %d, %+v, %v", said, used, step, err)
		}
	}
}

// The header of a datagram says where its payload is to go.
func TestDatagrams(t *testing.T) {
	four, six := Destination{Addr: netip.MustParseAddr("203.0.113.7"), Port: 53}, Destination{Addr: netip.MustParseAddr("2001:db8::1"), Port: 53}
	const start = "\x00\x00\x00"
	var d Datagrams
	for head, want := range map[string]Destination{
		start + "\x01\xcb\x00\x71\x07\x00\x35":                                           four,
		start + "\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x00\x35":     six,
		start + "\x04" + strings.Repeat("\x00", 10) + "\xff\xff\xcb\x00\x71\x07\x00\x35": four,
		start + "\x03\x0bAPI.example\x00\x35":                                            {Name: "api.example", Port: 53},
		start + "\x03\x0bAPI.example\x00\x36":                                            {Name: "api.example", Port: 54},
		start + "\x03\x0b203.0.113.7\x00\x35":                                            four,
	} {
		for _, payload := range []string{"", "payload"} {
			to, size, err := d.Read([]byte(head + payload))
			if to != want || size != len(head) || err != nil {
				t.Errorf("%q leads to %v, %d, %v", head, to, size, err)
			}
		}
		for n := range len(head) {
			if to, _, err := d.Read([]byte(head)[:n]); err != ErrDatagram {
				t.Errorf("%q leads to %v, %v", head[:n], to, err)
			}
		}
		if want.Name == "" {
			if got := AppendDatagram(nil, netip.AddrPortFrom(want.Addr, want.Port)); strings.HasPrefix(head, start+"\x01") && string(got) != head {
				t.Errorf("from %v the header is %q", want, got)
			}
		}
	}
	for _, said := range []string{
		"", "\x00\x00\x00", "\x01\x00\x00\x01\xcb\x00\x71\x07\x00\x35", "\x00\x01\x00\x01\xcb\x00\x71\x07\x00\x35", start + "\x02\xcb\x00\x71\x07\x00\x35", start + "\x00", start + "\xff\xcb\x00\x71\x07\x00\x35",
		start + "\x01\xcb\x00\x71\x07\x00\x00", start + "\x03\x00\x00\x35", start + "\x03\xff" + strings.Repeat("a", 255) + "\x00\x35", start + "\x03\xffshort\x00\x35",
		start + "\x03\x0a2130706433\x00\x35", start + "\x03\x060x7f.1\x00\x35", start + "\x03\x03::1", start + "\x03\x06a\x00.exa\x00\x35",
	} {
		if to, size, err := d.Read([]byte(said)); err != ErrDatagram || size != 0 || to != (Destination{}) {
			t.Errorf("%q leads to %v, %d, %v", said, to, size, err)
		}
	}
	for _, fragment := range []string{"\x00\x00\x01\x01\xcb\x00\x71\x07\x00\x35", "\x00\x00\x80\x00", "\x00\x00\xff\x03\x01a\x00\x35"} {
		if _, _, err := d.Read([]byte(fragment)); err != ErrFragment {
			t.Errorf("%q: %v", fragment, err)
		}
	}
}

// A datagram to a recent destination allocates nothing, and what is remembered is bounded.
func TestDatagramsAllocateNothing(t *testing.T) {
	var d Datagrams
	for _, head := range []string{"\x00\x00\x00\x01\xcb\x00\x71\x07\x00\x35", "\x00\x00\x00\x03\x0bapi.example\x00\x35"} {
		data := []byte(head + "payload")
		if n := testing.AllocsPerRun(100, func() { d.Read(data) }); n != 0 {
			t.Errorf("%q: %v allocations", head, n)
		}
	}
	for i := range 3 * maxNames {
		d.Read(append([]byte("\x00\x00\x00\x03\x03a"), byte('a'+i%26), byte('a'+i/26%26), 0, 53))
		if len(d.names) > maxNames {
			t.Fatalf("%d names are remembered", len(d.names))
		}
	}
}

// Whatever comes, a header is no longer than the datagram, and leads to a destination that is one.
func FuzzDatagrams(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\xcb\x00\x71\x07\x00\x35payload"))
	f.Add([]byte("\x00\x00\x00\x03\x0bAPI.example\x00\x35"))
	f.Add([]byte("\x00\x00\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x00\x35"))
	f.Add([]byte("\x00\x00\x01\x03\xff"))
	var d Datagrams
	f.Fuzz(func(t *testing.T, said []byte) {
		kept := string(said)
		to, size, err := d.Read(said)
		if string(said) != kept || size > len(said) || (err == nil) != (size >= 7) || (err == nil) != (to != Destination{}) {
			t.Fatalf("%q: %v, %d, %v", said, to, size, err)
		}
		if err != nil {
			return
		}
		host := to.Name
		if host == "" {
			host = to.Addr.String()
		}
		if again, ok := DestinationOf(host, to.Port); !ok || again != to {
			t.Fatalf("%v is not a destination of its own", to)
		}
		if again, whole, err := d.Read(AppendDatagram(nil, netip.AddrPortFrom(to.Addr, to.Port))); to.Name == "" && (again != to || whole != 10 && whole != 22 || err != nil) {
			t.Fatalf("%v is written as %v, %d, %v", to, again, whole, err)
		}
	})
}
