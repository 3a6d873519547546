package main

import (
	"fmt"
	"path/filepath"
)

// kannelProgram runs bearerbox, which binds to the sink, and smsbox, which takes messages. smsbox
// ends if bearerbox does not listen yet, on port 5001. Both end with the shell.
func kannelProgram(t tools, config string) (tool, []string) {
	const script = `trap "kill -9 0" TERM
bearerbox -v 4 "$0" &
{ until grep -q ":1389 .* 0A " /proc/net/tcp; do sleep 0.1; done; exec smsbox -v 4 "$0"; } &
wait`
	shell := t.Kannel
	shell.Path = "/bin/sh"
	return shell, []string{"-c", script, config}
}

func kannelConfig(s setting, dir, _ string) string {
	return fmt.Sprintf(`group = core
admin-port = 5002
admin-password = secret
smsbox-port = 5001
smsbox-interface = 127.0.0.1
log-file = %q
log-level = 3

group = smsc
smsc = smpp
host = 127.0.0.1
port = %d
transceiver-mode = true
smsc-username = source
smsc-password = ""
system-type = ""
reconnect-delay = 1
max-pending-submits = %d
throughput = %d

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = %d
sendsms-interface = 127.0.0.1
log-file = %q
log-level = 3

group = sendsms-user
username = u
password = p
`, filepath.Join(dir, "bearerbox.log"), sinkPort, inFlight, s.number, proxyPort, filepath.Join(dir, "smsbox.log"))
}
