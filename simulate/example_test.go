package simulate_test

import (
	"fmt"
	"time"

	"shaper/policy"
	"shaper/simulate"
)

const gateway = `
[class.account]
rate  = "10 packets/s"
queue = "10 packets"

[listener.gateway]
listen   = "127.0.0.1:9000"
protocol = "udp"
upstream = "192.0.2.1:9000"
class    = "account"
`

// This client sends 20 datagrams a second, all at the beginning of the second.
func ExampleRun() {
	p, _, err := policy.Parse("shaper.toml", []byte(gateway))
	if err != nil {
		fmt.Println(err)
		return
	}
	load, err := simulate.ParseLoad("pattern=seconds,rate=20 packets/s")
	if err != nil {
		fmt.Println(err)
		return
	}
	sources, err := simulate.Sources(p, []simulate.Load{load}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := simulate.Run(p, sources, simulate.Options{For: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range report.Classes {
		fmt.Printf("%s: of %d datagrams %d left and %d wait; the longest wait was %v\n",
			c.Name, c.Offered.Items, c.Left.Items, c.Waiting.Items, time.Duration(c.WaitMax))
	}
	// Output: account: of 1200 datagrams 600 left and 1 wait; the longest wait was 1s
}
