package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Errors go to logs. They do not repeat passwords and queries in addresses, nor the values of fields of
// HTTP, which may be keys of clients, not even with a name, nor a secret in place of its path.
func TestErrorsHideSecrets(t *testing.T) {
	const text = `
[class.a]
rate = "1 messages/s"
[fleet.prod]
address = ["redis://:s3cret@10.0.0.5:6379", "shaper:s3cret@10.0.0.5:6379", "10.0.0.5:6379,password=s3cret", "10.0.0.5:6379/?password=s3cret"]
password = "s3cret"
[listener.x]
listen = "127.0.0.1:0"
protocol = "http"
upstream = ["http://api.example/?token=s3cret", "https://api.example/#s3cret", "https://api.example/s3cret/", "https://s3cret@api.example", "http://me:s3cret@api.example/", "me:s3cret@api.example:80", "me:s3=cret?s3cret@api.example:80", "me:s3\"cret@api.example:80", "//me:s3 cret@api.example:80", "http://me:/s3cret@api.example", "api.example:80?token=s3cret", "api.example/?s3cret", "srv:_x._tcp.api.example?s3cret"]
health = { http = "/health?token=s3cret x" }
class = "a"
[listener.y]
listen = "127.0.0.1:0"
mode = "connect"
allow = ["https://me:s3cret@api.example/", "api.example:443/?token=s3cret", "X-Key:abc:s3cret", "[X-Key:s3cret]", "[X-Key:s3cret"]
class = "a"
[[rule]]
"header:X-Api-Key" = ["s3cret*s3cret*", "s3\u0001cret", 54, true, 1.5, ["s3cret"]]
class = "a"
[[rule]]
"header:X Api" = "s3cret"
class = "a"
[[rule]]
"header:X-Api-Key" = { s3cret = 1 }
class = "a"
[[rule]]
"header:Authorization: Bearer s3cret" = "*"
"header:X-Api-Key:s3cret" = "*"
"header:Authorization=s3cret" = "*"
"Authorization: Bearer s3cret" = "*"
path = "/?token=s3*cret"
class = "a"
[class.b]
rate = "1 messages/s"
per = ["header:Authorization: Bearer s3cret", "header:X-Api-Key:s3cret", "Authorization: Bearer s3cret", "X-Api-Key:s3cret", "path:/?token=s3cret"]
cost = { header = "Authorization: Bearer s3cret" }
settle = { header = "Authorization:s3cret" }
throttled_by = { header = "Authorization=s3cret", equals = "1" }
[fleet.file]
address = "10.0.0.5:6379"
password_file = "s3cret\u0000"
sentinel = "main"
sentinel_password_file = "s3cret\u0000"
tls = { cert = "c", key = 54 }
[fleet.number]
address = "10.0.0.5:6379"
password_file = 54
sentinel_password_file = 54
[fleet.list]
address = "10.0.0.5:6379"
password_file = ["s3cret"]
sentinel_password_file = ["s3cret"]
tls = { cert = "c", key = "s3cret\u0000" }
[listener.z]
listen = "127.0.0.1:0"
mode = "connect"
users = "me:s3cret\u0000"
allow = "*:443"
class = "a"
tls = { cert = "c", key = 1.5 }
[[rule]]
"header:X-Api-Key" = "s3cret
class = "a"
`
	_, _, err := Parse("p.toml", []byte(text))
	var all Errors
	if !errors.As(err, &all) || len(all) < 46 {
		t.Fatalf("%d mistakes: %v", len(all), err)
	}
	for _, e := range all {
		for _, secret := range []string{"s3", "cret", "54", "1.5"} {
			if strings.Contains(e.Key+e.Problem+e.Allowed, secret) {
				t.Errorf("%q is told: %v", secret, e)
			}
		}
	}
}

// A policy that is shown tells no key of a client and no query, in none of the forms in which it is
// printed. Another secret is a change all the same.
func TestPrintsHideSecrets(t *testing.T) {
	with := func(secret string) *Policy {
		return mustParse(t, `
[class.a]
rate = "1 messages/s"
[listener.x]
listen = "127.0.0.1:0"
protocol = "http"
upstream = "api.example:80"
health = { http = "/health?token=`+secret+`" }
class = "a"
[[rule]]
"header:X-Api-Key" = ["`+secret+`", "*`+secret+`"]
class = "a"
[[rule]]
path = "/?token=`+secret+`*"
class = "a"
`)
	}
	none := mustParse(t, "[class.a]\nrate = \"1 messages/s\"\n[listener.z]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = \"echo:\"\nclass = \"a\"\n")
	old, new := with("s3cret"), with("s4cret")
	var b strings.Builder
	for _, p := range []*Policy{old, new} {
		if err := p.WriteTree(&b); err != nil {
			t.Fatal(err)
		}
		b.WriteString(diffLines(none, p) + diffLines(p, none))
		for _, r := range Routes(p) {
			fmt.Fprintln(&b, r)
		}
	}
	for _, shown := range []string{"(test.toml:10): header:X-Api-Key (not shown)\n", "(test.toml:13): path /?(not shown)\n"} {
		if !strings.Contains(b.String(), shown) {
			t.Errorf("no route has %q", shown)
		}
	}
	want := `
~ listener x: health { every = "5s", timeout = "2s", http = "/health?(not shown)", rise = 2, fall = 3 } -> { every = "5s", timeout = "2s", http = "/health?(not shown)", rise = 2, fall = 3 }
- rule 1: header:X-Api-Key (not shown), class a
- rule 2: path /?(not shown), class a
+ rule 1: header:X-Api-Key (not shown), class a
+ rule 2: path /?(not shown), class a
`
	got := diffLines(old, new)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	for _, line := range strings.Split(b.String()+got, "\n") {
		if strings.Contains(line, "cret") {
			t.Errorf("a secret is told: %s", line)
		}
	}
	if len(Diff(old, with("s3cret"))) > 0 {
		t.Error("a policy differs from itself")
	}
}

// Values that differ are a change, even if people read them alike.
func TestDiffTellsListsApart(t *testing.T) {
	const text = `
[class.a]
rate = "1 messages/s"
throttled_by = { header = "X-Status", equals = LIST }
[listener.x]
listen = "127.0.0.1:0"
protocol = "http"
upstream = "192.0.2.1:80"
class = "a"
[[rule]]
KEY = LIST
class = "a"
`
	for _, key := range []string{"path", "host", "method", `"header:X"`} {
		with := func(list string) *Policy {
			return mustParse(t, strings.NewReplacer("LIST", list, "KEY", key).Replace(text))
		}
		changes := Diff(with(`["a, b"]`), with(`["a", "b"]`))
		if len(changes) != 3 || changes[0].Old != `{ header = "X-Status", equals = ["a, b"] }` || changes[0].New != `{ header = "X-Status", equals = ["a", "b"] }` {
			t.Errorf("%s: %v", key, changes)
		}
	}
}
