package main

import "fmt"

// htbScript has HTB limit what goes to the sink. The link gets the packets of Ethernet, and TCP
// the pieces that it sends where a round trip takes milliseconds: on loopback, one packet would
// be 64 KiB.
const htbScript = `
ip link set lo mtu 1500
echo 0 >/proc/sys/net/ipv4/tcp_tso_rtt_log
tc qdisc add dev lo root handle 1: htb
tc class add dev lo parent 1: classid 1:1 htb rate %.0fbit
tc filter add dev lo parent 1: protocol ip u32 match ip dport %d 0xffff flowid 1:1
`

const htbUndo = `
tc qdisc del dev lo root
echo 9 >/proc/sys/net/ipv4/tcp_tso_rtt_log
ip link set lo mtu 65536
`

// htbLink is a shapeLink. It measures no processor time: the kernel works for whoever sends.
func htbLink(s setting) (undo func(), err error) {
	undo = func() { command("", "sh", "-c", htbUndo) }
	_, err = command("", "sh", "-ec", fmt.Sprintf(htbScript, 8*s.bytes(), sinkPort))
	return undo, err
}
