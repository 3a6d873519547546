package tc_test

import (
	"fmt"

	"shaper/policy"
	"shaper/tc"
)

// A plan needs neither a kernel nor privileges.
func ExamplePlan() {
	p, _, err := policy.Parse("shaper.toml", []byte(`
[class.uplink]
rate = "20mbit"

[class.voice]
parent   = "uplink"
rate     = "2mbit"
ceil     = "20mbit"
priority = 0

[tc.eth0]
class = "uplink"

[[rule]]
protocol = "udp"
port     = 5060
class    = "voice"
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := tc.Plan(p, p.TC[0], tc.Device{Name: "eth0", Index: 2, MTU: 1500})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, o := range plan {
		if o.Type == tc.Qdisc || o.Type == tc.Class {
			fmt.Println(o, "under", o.Parent)
		}
	}
	// Output:
	// qdisc htb 5ca0: under root
	// class htb 5ca0:4365 under root
	// class htb 5ca0:1 under 5ca0:4365
	// qdisc pfifo 1: under 5ca0:1
	// class htb 5ca0:fd0 under 5ca0:4365
	// qdisc pfifo fd0: under 5ca0:fd0
	// class htb 5ca0:fff0 under root
}
