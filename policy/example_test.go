package policy_test

import (
	"fmt"
	"net/netip"

	"shaper/policy"
)

const text = `
[class.office]
rate = "20mbit"

[class.guests]
rate = "1mbit"

[listener.web]
listen   = "127.0.0.1:8080"
upstream = "gw.example:443"
class    = "guests"

[[rule]]
source = ["10.1.0.0/16", "fd00:1::/64"]
class  = "office"
`

func ExampleParse() {
	p, _, err := policy.Parse("shaper.toml", []byte(text))
	if err != nil {
		fmt.Println(err)
		return
	}
	class, _ := p.Class("office")
	fmt.Println(class.Algorithm, class.Rate, class.Queue)
	// Output: leaky 20mbit 1000 items or 1MiB
}

// Load reports every mistake of a file with its position.
func ExampleErrors() {
	_, _, err := policy.Parse("shaper.toml", []byte(text+"clas = \"guests\"\nport = 0\n"))
	fmt.Println(err)
	// Output:
	// shaper.toml:16:1: rule[1].clas: unknown key; did you mean "class"?
	// shaper.toml:17:8: rule[1].port: "0" is not a port; a port is an integer from 1 to 65535, or a range like "8000-8100"
}

func ExampleClassifier() {
	p, _, _ := policy.Parse("shaper.toml", []byte(text))
	c := policy.Compile(p)
	conn := policy.Conn{Listener: "web", Source: netip.MustParseAddrPort("10.1.2.3:40000"), Port: 8080}
	fmt.Println(c.Classify(conn).Class)
	fmt.Print(c.Explain(conn, policy.Fields{}))
	// Output:
	// office
	// class office: rule 1 (shaper.toml:13): source 10.1.2.3 is in 10.1.0.0/16
}

func ExampleDiff() {
	old, _, _ := policy.Parse("shaper.toml", []byte(text))
	new, _, _ := old.With("guests", map[string]string{"rate": "2mbit"})
	for _, change := range policy.Diff(old, new) {
		fmt.Println(change)
	}
	// Output: ~ class guests: rate 1mbit -> 2mbit
}
