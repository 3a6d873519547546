package tests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// policyMaker writes a random policy and a workload for it.
type policyMaker struct {
	*rand.Rand
	b        strings.Builder
	protocol string
	unit     string // of its classes
}

// randomRequest returns a random policy with a random workload. Some of them are wrong.
func randomRequest(random *rand.Rand) playRequest {
	r := policyMaker{Rand: random}
	r.protocol = r.one("udp", "udp", "tcp", "lines", "smpp", "http")
	switch {
	case r.protocol == "tcp" || r.IntN(5) == 0:
		r.unit = "kB"
	case r.protocol == "udp":
		r.unit = "packets"
	default:
		r.unit = "messages"
	}
	classes := 1 + r.IntN(5)
	members := 0
	if r.IntN(20) == 0 {
		members = 1 + r.IntN(3)
		r.put("[fleet.prod]\naddress = \"127.0.0.1:6379\"\n")
	}
	parents := make([]int, classes) // of each class; -1: none
	for i := range parents {
		if parents[i] = -1; i > 0 && r.IntN(2) == 0 {
			parents[i] = r.IntN(i)
		}
	}
	for i, parent := range parents {
		r.class(i, parent, members > 0 && i == 0)
		if !slices.Contains(parents, i) && r.IntN(5) == 0 {
			r.put("per = %q\n", r.one("source", "connection", "source/24"))
		}
		r.schedule(i)
	}
	for i := range classes {
		r.put("[listener.l%d]\nlisten = \"127.0.0.1:%d\"\nprotocol = %q\nupstream = \"192.0.2.1:%d\"\nclass = \"c%d\"\n", i, 7000+i, r.protocol, 9000+i, i)
	}
	q := playRequest{Policy: r.b.String(), For: fmt.Sprintf("%dms", 300+r.IntN(2000)), Seed: r.Uint64N(1 << 50)}
	if members > 0 {
		q.Members = &members
	}
	if r.IntN(5) == 0 {
		q.Trace, q.TraceText = "trace.csv", r.trace(classes)
		return q
	}
	for range 1 + r.IntN(3) {
		q.Loads = append(q.Loads, r.load())
	}
	return q
}

func (r *policyMaker) put(format string, args ...any) { fmt.Fprintf(&r.b, format, args...) }

func (r *policyMaker) one(all ...string) string { return all[r.IntN(len(all))] }

func (r *policyMaker) rate() string {
	if r.unit == "kB" {
		return fmt.Sprintf("%dkB/s", 1+r.IntN(500))
	}
	// Each is a whole number in three seconds, so windows of 3s and 6s hold whole numbers.
	return r.one(fmt.Sprintf("%d %s/s", 1+r.IntN(100), r.unit), fmt.Sprintf("%d %s/3s", 1+r.IntN(300), r.unit), fmt.Sprintf("%d %s/min", 20*(1+r.IntN(100)), r.unit))
}

func (r *policyMaker) amount() string {
	if r.unit == "kB" {
		return fmt.Sprintf("%dKiB", 4+r.IntN(60))
	}
	return fmt.Sprintf("%d %s", 1+r.IntN(40), r.unit)
}

// class writes a class. One of a hundred has a key that does not exist.
func (r *policyMaker) class(i, parent int, shared bool) {
	algorithm := r.one("leaky", "leaky", "token", "gcra", "fixed-window", "sliding-log", "sliding-window")
	r.put("[class.c%d]\nrate = %q\nalgorithm = %q\n", i, r.rate(), algorithm)
	switch algorithm {
	case "token", "gcra":
		r.put("burst = %q\n", r.amount())
	case "fixed-window", "sliding-log", "sliding-window":
		r.put("window = %q\n", r.one("3s", "6s")) // without it, a schedule may not have a rate of another period
	}
	if parent >= 0 {
		r.put("parent = \"c%d\"\npriority = %d\nweight = %d\n", parent, r.IntN(8), 1+r.IntN(100))
	}
	if r.IntN(3) > 0 {
		r.put("queue = %q\n", r.amount())
	}
	if r.IntN(4) == 0 {
		r.put("max_wait = \"%dms\"\n", 10+r.IntN(2000))
	}
	if r.IntN(6) == 0 {
		r.put("headroom = \"%d%%\"\n", 1+r.IntN(20))
	}
	if r.IntN(6) == 0 {
		r.put("also = [%q]\n", r.rate())
	}
	if shared {
		r.put("shared = \"prod\"\n")
	}
	if r.IntN(100) == 0 {
		r.put("ceiling = %q\n", r.rate())
	}
}

// schedule may give the class that was written last another rate: the simulation begins in 1970, at
// midnight of UTC.
func (r *policyMaker) schedule(i int) {
	if r.IntN(10) == 0 {
		r.put("[[class.c%d.at]]\nfrom = \"00:00\"\nto = \"06:00\"\nzone = %q\nrate = %q\n", i, r.one("UTC", "Europe/Paris", "Asia/Kolkata"), r.rate())
	}
}

func (r *policyMaker) load() string {
	load := fmt.Sprintf("rate=%d packets/s,size=%dB,source=10.0.%d.%d:%d,start=%dms", 1+r.IntN(200), 1+r.IntN(2000), r.IntN(2), r.IntN(4), 1+r.IntN(4), r.IntN(900))
	switch pattern := r.one("constant", "poisson", "bursts", "seconds"); pattern {
	case "bursts":
		return load + fmt.Sprintf(",pattern=bursts,on=%dms,off=%dms", 1+r.IntN(300), r.IntN(900))
	default:
		return load + ",pattern=" + pattern
	}
}

// trace returns a trace in CSV: each line names its listener.
func (r *policyMaker) trace(listeners int) string {
	var b strings.Builder
	b.WriteString("time,client,bytes,listener,messages\n")
	at := 0
	for range r.IntN(500) {
		at += r.IntN(20_000)
		fmt.Fprintf(&b, "%d.%06d,10.0.0.%d:%d,%d,l%d,1\n", at/1e6, at%1e6, r.IntN(4), 1+r.IntN(3), 1+r.IntN(2000), r.IntN(listeners))
	}
	return b.String()
}
