package policy

import (
	"errors"
	"strings"
	"testing"
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
allow = ["https://me:s3cret@api.example/", "api.example:443/?token=s3cret"]
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
tls = { cert = "c", key = 54 }
[fleet.number]
address = "10.0.0.5:6379"
password_file = 54
[fleet.list]
address = "10.0.0.5:6379"
password_file = ["s3cret"]
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
	if !errors.As(err, &all) || len(all) < 43 {
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
