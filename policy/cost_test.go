package policy

import "testing"

// check warns of paths that are written as other programs write them, and says what to write. Names with such signs in them
// are valid.
func TestPathsAsElsewhere(t *testing.T) {
	for path, want := range map[Path]Path{
		"$.max_tokens":                       "max_tokens",
		"$.usage.total_tokens":               "usage.total_tokens",
		"$['usage'][\"n\"]":                  "usage.n",
		"messages[0].status":                 "messages.0.status",
		"messages[*].status":                 "messages.*.status",
		"$.messages[*].status":               "messages.*.status",
		"[0].status":                         "0.status",
		"$[0].status":                        "0.status",
		"/usage/total_tokens":                "usage.total_tokens",
		"#/usage/total_tokens":               "usage.total_tokens",
		"usage.total_tokens":                 "usage.total_tokens",
		"messages.*.status":                  "messages.*.status",
		"$":                                  "$",
		"a.$":                                "a.$",
		"$ref.n":                             "$ref.n",
		"a/b":                                "a/b",
		"a[b]":                               "a[b]",
		"/":                                  "/",
		"//a":                                "//a",
		"/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/h": "/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/h",
	} {
		if got := path.plain(); got != want {
			t.Errorf("%q is %q, want %q", path, got, want)
		}
	}
	_, warnings, err := Parse("t.toml", []byte(`[class.a]
rate = "30000 tokens/min"
cost = { json = "$.max_tokens" }
settle = { json = "/usage/total_tokens" }
throttled_by = { json = "messages[*].status", equals = "1" }
[listener.x]
listen = "127.0.0.1:8080"
protocol = "http"
upstream = "192.0.2.1:80"
class = "a"
`))
	const want = `t.toml:3:17: class.a.cost.json: "$.max_tokens" looks for a name with such signs in it, and is no JSONPath; write "max_tokens"
t.toml:4:19: class.a.settle.json: "/usage/total_tokens" looks for a name with such signs in it, and is no JSONPath; write "usage.total_tokens"
t.toml:5:25: class.a.throttled_by.json: "messages[*].status" looks for a name with such signs in it, and is no JSONPath; write "messages.*.status"`
	if err != nil || warnings.Error() != want {
		t.Errorf("%v\n%v\nwant\n%s", err, warnings, want)
	}
}
