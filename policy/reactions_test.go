package policy

import (
	"fmt"
	"testing"
)

func TestReactions(t *testing.T) {
	p, _, err := Parse("t.toml", []byte(`
[class.account]
rate  = "50 messages/s"
learn = { floor = "5 messages/s" }
retry = { max = 5 }

[class.api]
parent = "account"
rate   = "20 messages/s"
retry  = { max = 3, in_flight = 2 }
hints  = true

[class.tried]
parent = "account"
rate   = "20 messages/s"
retry  = { max = 3 }
shadow = true

[class.other]
rate = "1 MB/s"

[listener.api]
listen   = "127.0.0.1:8080"
protocol = "http"
upstream = "192.0.2.1:80"
class    = "api"

[listener.tried]
listen   = "127.0.0.1:2775"
protocol = "smpp"
upstream = "192.0.2.1:80"
class    = "tried"

[listener.lines]
listen   = "127.0.0.1:8081"
protocol = "lines"
upstream = "192.0.2.1:80"
class    = "account"

[listener.other]
listen   = "127.0.0.1:8082"
upstream = "192.0.2.1:80"
class    = "other"
`))
	if err != nil {
		t.Fatal(err)
	}
	const learn = `learn = { floor = "5 messages/s" } of class account`
	for _, c := range []struct{ listener, class, want string }{
		{"api", "api", "[retry = { max = 3, in_flight = 2 } of class api hints = true of class api " + learn + "]"},
		{"tried", "tried", "[retry = { max = 5, in_flight = 1 } of class account " + learn + "]"}, // that of the class is in the shadow
		{"lines", "account", "[]"},
		{"other", "other", "[]"},
		{"other", "", "[]"},
	} {
		if got := fmt.Sprint(p.Reactions(c.listener, c.class)); got != c.want {
			t.Errorf("class %q of listener %q: %s, want %s", c.class, c.listener, got, c.want)
		}
	}
}
