package policy

import "testing"

func TestBindError(t *testing.T) {
	p := mustParse(t, `
[daemon]
http = "127.0.0.1:0"
[class.a]
rate = "1mbit"
[listener.x]
listen = [
  "127.0.0.1:01", "localhost:2",
]
upstream = "echo:"
class = "a"
[listener.y]
listen = "127.0.0.1:3"
mode   = "transparent"
allow  = "203.0.113.0/24"
class  = "a"
`)
	changed, _, err := p.With("a", map[string]string{"rate": "2mbit"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ key, address, want string }{
		{"daemon.http", "127.0.0.1:0", "test.toml:3:8: daemon.http: no; yes"},
		{"daemon.control", "/run/shaper/control.sock", "test.toml: daemon.control: no; yes"}, // a default
		{"listener.x.listen", "127.0.0.1:1", "test.toml:8:3: listener.x.listen: no; yes"},
		{"listener.x.listen", "localhost:2", "test.toml:8:19: listener.x.listen: no; yes"},
		{"listener.x.listen", "127.0.0.1:2", "test.toml:7:10: listener.x.listen: no; yes"}, // as the kernel has it
		{"listener.y.mode", "", "test.toml:14:10: listener.y.mode: no; yes"},
	} {
		if got := changed.BindError(tt.key, tt.address, "no", "yes").Error(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
