package policy

import "testing"

func TestPortRange(t *testing.T) {
	for text, want := range map[string]PortRange{
		"1": {1, 1}, "443": {443, 443}, "8000-8100": {8000, 8100}, "1-65535": {1, 65535}, "7-7": {7, 7},
	} {
		got, err := ParsePortRange(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := ParsePortRange(got.String()); err != nil || again != got {
			t.Errorf("%v prints as text that reads as %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", "0", "65536", "+1", "01", "-", "1-", "-1", "2-1", "1-2-3", "1 - 2", "0-5"} {
		if got, err := ParsePortRange(text); err == nil {
			t.Errorf("%q, which is invalid, reads as %v", text, got)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "10.0.0.0/8": "10.0.0.0/8", "0.0.0.0/0": "0.0.0.0/0", "::/0": "::/0",
		"fd00::1": "fd00::1/128", "fd00:1::/64": "fd00:1::/64",
		"::ffff:10.1.2.3": "10.1.2.3/32", "::ffff:10.0.0.0/104": "10.0.0.0/8",
	} {
		if got, err := parsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/08", "::ffff:10.0.0.0/95", "::ffff:10.0.0.0/129", "::ffff:10.0.0.1/104", "fe80::1%lo/64", "a/8"} {
		if got, err := parsePrefix(text); err == nil {
			t.Errorf("%q, which is invalid, reads as %v", text, got)
		}
	}
}

func TestListenAndUpstream(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": ":80", "[::]:80": "[::]:80", "localhost:080": "localhost:80",
		"[0:0::1]:80": "[::1]:80", "127.0.0.1:0": "127.0.0.1:0", "[fe80::1%eth0]:80": "[fe80::1%eth0]:80",
		"systemd:web-1": "systemd:web-1",
	} {
		if got, err := parseListen(text); err != nil || got != want {
			t.Errorf("listen %s: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "80", "a b:80", "1.2.3:80", "[127.0.0.1:80", "systemd:", "systemd:a/b", "-:x", "echo:"} {
		if got, err := parseListen(text); err == nil {
			t.Errorf("listen %q, which is invalid, reads as %q", text, got)
		}
	}
	for _, text := range []string{"echo:", "discard:", "echo:7", "discard:80", "gw.example:443", "[::1]:1", "127.0.0.1:65535"} {
		if got, err := parseUpstream(text); err != nil || got != text {
			t.Errorf("upstream %s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":80", "echo", "host:0", "host:", "systemd:web", "ehco:"} {
		if got, err := parseUpstream(text); err == nil {
			t.Errorf("upstream %q, which is invalid, reads as %q", text, got)
		}
	}
}

// An upstream may reach a listener although both are written differently.
func TestReachedBy(t *testing.T) {
	for _, tt := range []struct {
		listen, upstream string
		want             bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"127.0.0.1:1", "localhost:1", true},
		{"127.0.0.1:1", "LOCALHOST.:1", true},
		{"127.0.0.1:1", "0.0.0.0:1", true},
		{"127.0.0.1:1", "[::]:1", true},
		{"127.0.0.1:1", "[::ffff:127.0.0.1]:1", true},
		{"127.0.0.1:1", "[::ffff:0.0.0.0]:1", true},
		{"127.0.0.1:1", "[::1]:1", false},
		{"[::1]:1", "localhost:1", true},
		{"[::1]:1", "[0:0:0:0:0:0:0:1]:1", true},
		{"localhost:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "127.0.0.9:1", true},
		{"0.0.0.0:1", "[::1]:1", false},
		{"[::]:1", "127.0.0.9:1", true},
		{":1", "[::1]:1", true},
		{":1", "192.0.2.1:1", false}, // whether it is ours shows at the dial
		{"192.0.2.1:1", "192.0.2.1:1", true},
		{"gw.example:1", "GW.example:1", true},
		{"gw.example:1", "127.0.0.1:1", false},
	} {
		listen, _ := endpointOf(tt.listen)
		upstream, _ := endpointOf(tt.upstream)
		if got := listen.reachedBy(upstream); got != tt.want {
			t.Errorf("from %s to %s: %v, want %v", tt.upstream, tt.listen, got, tt.want)
		}
	}
}

// The kernel cannot bind some pairs of sockets.
func TestCollides(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"127.0.0.1:1", "0.0.0.0:1", true},
		{"127.0.0.1:1", ":1", true},
		{"127.0.0.1:1", "[::]:1", false},
		{"[::1]:1", "[::]:1", true},
		{"[::1]:1", "0.0.0.0:1", false},
		{"0.0.0.0:1", "[::]:1", false}, // nginx's pair: one socket for each family
		{"0.0.0.0:1", ":1", true},
		{"[::]:1", ":1", true},
		{"localhost:1", "127.0.0.1:1", true},
		{"192.0.2.1:1", "0.0.0.0:1", true},
	} {
		a, _ := endpointOf(tt.a)
		b, _ := endpointOf(tt.b)
		if got := [2]bool{a.collides(b), b.collides(a)}; got != [2]bool{tt.want, tt.want} {
			t.Errorf("%s and %s: %v, want %v in both orders", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"rate", "queue", "burst", "max_wait", "tcp"}
	for word, want := range map[string]string{
		"rat": "rate", "RATE": "rate", "raet": "rate", "quue": "queue", "que": "", "bursts": "burst",
		"max-wait": "max_wait", "maxwait": "max_wait", "max wait": "max_wait", "tpc": "tcp", "icmp": "", "x": "", "": "", "colour": "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
