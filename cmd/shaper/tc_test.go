package main

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"shaper/policy"
	"shaper/tc"
	"shaper/tc/tctest"
)

// To clear a device that neither the kernel nor the policy has is a mistake of the command line. A device of the
// policy may come and go.
func TestClearOfNoDevice(t *testing.T) {
	for name, says := range map[string]string{
		"etho": "shaper: there is no network device \"etho\", and the policy has no section [tc.etho]; `ip link` shows the devices",
		"ppp0": "",
	} {
		section := policy.DefaultTC(name)
		if says == "" {
			section.Class = "a"
		}
		var out bytes.Buffer
		app := newApp(&out, &out)
		c := cli.NewContext(app, flag.NewFlagSet("", flag.ContinueOnError), nil)
		c.Command = app.Command("tc").Subcommands[3]
		err := tcClear(c, tc.On(tctest.New("eth0")), &policy.Policy{}, []policy.TC{section})
		if says == "" && (err != nil || !strings.HasPrefix(out.String(), name+": cleared 0 of ")) {
			t.Errorf("%s: %v, %s", name, err, &out)
		}
		if says != "" && (err == nil || err.Error() != says || exitCode(err) != exitUsage || out.Len() > 0) {
			t.Errorf("%s: %v, %s", name, err, &out)
		}
	}
}
