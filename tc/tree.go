package tc

import (
	"fmt"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// tree makes the objects of one device. Only the goroutine that made it uses it.
type tree struct {
	*builder
	name    string
	classes []policy.Class             // parents before their children
	under   map[string][]*policy.Class // children, by name of the parent
	leaves  map[string]Handle          // class ids for packets of a class itself, by its name
	objects []Object
}

// add appends an object, and gives it the device.
func (t *tree) add(o Object) {
	o.Device = t.name
	t.objects = append(t.objects, o)
}

// lone returns the objects of a root class without children: TBF over a queue. TBF cuts up
// packets that are larger than its bucket. It needs no filters.
func (t *tree) lone(c *policy.Class) []Object {
	rate := bytesPerSecond(c.Limit(), c)
	kind, queue := t.queue(c)
	number := map[string]uint16{"pfifo": 1, "bfifo": 2, "fq_codel": 3, "sfq": 4}[kind] // the kind at a handle cannot change
	limit := queueLimit(queue)
	burst := t.smallestBurst(rate)
	if burst > gsoUnlimited {
		burst += largestPacket // TBF sends it whole, once there are tokens for all of it
	}
	ticks := tbfDepth(rate, burst)
	if written := t.burst(c, rate); written != t.smallestBurst(rate) {
		ticks = tbfTicks(rate, written) // no more than the policy says
	}
	t.add(Object{Type: Qdisc, Handle: tbfHandle, Parent: rootParent, Kind: "tbf",
		Params: tbf{Rate: rate, Ticks: ticks, Limit: limit}})
	t.add(Object{Type: Qdisc, Handle: handleOf(number, 0), Parent: tbfHandle + 1, Kind: kind, Params: queue})
	return t.objects
}

// htb adds the root and the classes with their queues.
func (t *tree) htb() {
	root := &t.classes[0]
	t.add(Object{Type: Qdisc, Handle: htbHandle, Parent: rootParent, Kind: "htb", Params: ourRoot})
	own := t.referenced()
	assured := t.assured(own)
	for i := range t.classes {
		c := &t.classes[i]
		parent := rootParent
		if c != root {
			parent = t.id(c.Parent)
		}
		params := t.class(c, assured[c.Name])
		if len(t.under[c.Name]) == 0 {
			t.leaf(c, t.id(c.Name), parent, params)
			continue
		}
		params.Prio, params.Quantum = 0, 0
		t.add(Object{Type: Class, Handle: t.id(c.Name), Parent: parent, Kind: "htb", Params: params})
		switch {
		case c == root:
			t.own(c, htbHandle+policy.UnmatchedMinor, params)
		case own[c.Name]:
			t.own(c, t.id(c.Name+"/"), params)
		}
	}
	if size := t.gso(); size < gsoUnlimited && t.name == t.device.Name {
		t.add(Object{Type: Class, Handle: noteHandle, Parent: rootParent, Kind: "htb", Params: noteOf(linkSizes{})})
		t.add(Object{Type: Link, Kind: "sizes", Params: linkSizes{GSO: size, GSO4: size}})
	}
}

// id returns the class id of a class. With "/" after the name it is the id of the leaf for
// the class itself.
func (t *tree) id(class string) Handle { return htbHandle | Handle(t.minors[class]) }

// leaf adds a class with a queue.
func (t *tree) leaf(c *policy.Class, id, parent Handle, params htbClass) {
	t.leaves[c.Name] = id
	t.add(Object{Type: Class, Handle: id, Parent: parent, Kind: "htb", Params: params})
	kind, queue := t.queue(c)
	t.add(Object{Type: Qdisc, Handle: handleOf(uint16(id), 0), Parent: id, Kind: kind, Params: queue})
}

// own adds the leaf for packets that belong to a class with children itself. It competes
// with the children as a class with default values, and is assured of next to nothing.
func (t *tree) own(c *policy.Class, id Handle, of htbClass) {
	params := of
	params.Rate = ownRate(of.Ceil)
	params.Burst = htbTicks(params.Rate, 2*t.device.frame())
	params.Prio, params.Quantum = uint32(policy.DefaultClass("").Priority), t.quantum(1)
	t.leaf(c, id, t.id(c.Name), params)
}

// ownRate returns the rate that such a leaf is assured of. HTB allows no rate of 0.
func ownRate(limit uint64) uint64 { return max(limit/1000, 1) }

// referenced returns the classes that packets may belong to: those that a rule names, and
// those that the proxy marks.
func (t *tree) referenced() map[string]bool {
	named := map[string]bool{}
	for _, r := range t.policy.Rules {
		named[r.Class] = true
	}
	for _, l := range t.policy.Listeners {
		if t.section.Mark {
			named[l.Class] = true
		}
	}
	return named
}

// assured returns the rates that the classes are assured of, in bytes per second. HTB
// serves a class within its rate, whatever the classes above it have sent. So if children
// are assured of more than their parent, assured reduces their rates in proportion: then no
// class exceeds its limit because of its children.
func (t *tree) assured(own map[string]bool) map[string]uint64 {
	root := &t.classes[0]
	rates := map[string]uint64{root.Name: bytesPerSecond(root.Limit(), root)}
	for i := range t.classes {
		parent := &t.classes[i]
		children := t.under[parent.Name]
		budget, sum := float64(rates[parent.Name]), 0.
		if parent == root || own[parent.Name] {
			budget = max(budget-float64(ownRate(bytesPerSecond(parent.Limit(), parent))), 1)
		}
		for _, c := range children {
			sum += float64(bytesPerSecond(c.Rate, c))
		}
		for _, c := range children {
			rate := bytesPerSecond(c.Rate, c)
			if sum > budget {
				rate = uint64(float64(rate) * budget / sum)
			}
			rates[c.Name] = max(rate, 1)
		}
	}
	return rates
}

// class returns the parameters of a class of HTB.
func (t *tree) class(c *policy.Class, assured uint64) htbClass {
	ceil := bytesPerSecond(c.Limit(), c)
	burst := t.burst(c, ceil)
	h := htbClass{Rate: assured, Ceil: ceil, CBurst: htbTicks(ceil, burst), Prio: uint32(c.Priority), Quantum: t.quantum(c.Weight)}
	if h.Burst = h.CBurst; assured < ceil {
		h.Burst = htbTicks(assured, t.smallestBurst(assured))
	}
	return h
}

// bytesPerSecond returns a rate of a class for a qdisc: less the headroom, in whole bytes
// per second, at least 1.
func bytesPerSecond(r unit.Rate, c *policy.Class) uint64 {
	return uint64(max(r.Below(c.Headroom).Units(time.Second), 1))
}

// burst returns how many bytes of a class may leave at once. rate is in bytes per second.
func (t *tree) burst(c *policy.Class, rate uint64) uint64 {
	if c.Algorithm.HasBurst() && !c.Burst.IsZero() {
		return uint64(c.Burst.N)
	}
	return t.smallestBurst(rate)
}

// fast is the rate in bytes per second above which bursts grow faster: 100 Mbit/s.
const fast = 12_500_000

// smallestBurst returns the smallest burst that reaches a rate although the kernel's timers are
// late. It is 1 ms at the rate up to fast, plus 4 ms at the rate above, and at least two
// frames. 4 ms is how long another program may keep the processor that the timer waits for.
func (t *tree) smallestBurst(rate uint64) uint64 {
	burst := rate / 1000
	if rate > fast {
		burst += 3 * (rate - fast) / 1000
	}
	return max(burst, 2*t.device.frame())
}

const (
	gsoUnlimited  = 65536
	largestPacket = gsoUnlimited + gsoUnlimited/16 // with the headers of its segments
)

// gso returns how large a packet may be that the network card, or the device's driver,
// cuts into frames, in bytes. HTB sends such a packet whole, so it must not be larger than
// the smallest burst.
func (t *tree) gso() uint32 {
	size := uint64(gsoUnlimited)
	for i := range t.classes {
		c := &t.classes[i]
		size = min(size, t.burst(c, bytesPerSecond(c.Limit(), c)))
	}
	return uint32(size)
}

// quantum returns how many bytes a class sends in one turn of deficit round robin: the
// largest packet on the wire, times the weight. With less, HTB would not keep to weights.
func (t *tree) quantum(weight int) uint32 {
	largest := uint64(t.gso())
	return uint32((largest + largest/16) * uint64(weight))
}

// queue returns the queue of a class: one that serves flows in turn, if the kernel has one.
// A queue limited in bytes is a bfifo.
func (t *tree) queue(c *policy.Class) (kind string, params Params) {
	packets, bytes := c.Queue.Items.N, int64(c.Queue.Bytes)
	if c.MaxWait > 0 { // the queue holds only what leaves within that time
		frame, most := int64(t.device.frame()), bytes
		if most == 0 {
			most = packets * frame
		}
		packets, bytes = 0, min(most, max(c.Rate.Below(c.Headroom).Units(time.Duration(c.MaxWait)), frame))
	}
	most := func(n int64) uint32 { return uint32(min(n, 1<<31-1)) }
	switch {
	case packets == 0:
		return "bfifo", fifo{most(bytes)}
	case t.device.Kinds.FQCodel:
		return "fq_codel", fqCodel{most(packets)}
	case t.device.Kinds.SFQ:
		return "sfq", sfq{min(most(packets), sfqMost)}
	}
	return "pfifo", fifo{most(packets)}
}

// queueLimit returns the limit of a queue, in its own unit.
func queueLimit(p Params) uint32 {
	switch q := p.(type) {
	case fifo:
		return q.Limit
	case fqCodel:
		return q.Limit
	case sfq:
		return q.Limit
	}
	return 0
}

// filters adds the filters of the marks and of the rules. A rule for a class of another tree
// is kept, since it hides later rules: on this device its packets are unmatched.
func (t *tree) filters() error {
	if t.section.Mark && t.name == t.device.Name {
		t.add(Object{Type: Filter, Handle: 1, Parent: htbHandle, Kind: "bpf", Pref: markPref, Params: markFilter{}})
	}
	rules := t.policy.Rules
	for n := len(rules); n > 0 && t.leaves[rules[n-1].Class] == 0; n-- {
		rules = rules[:n-1] // it hides no rule of ours
	}
	total := 0
	for _, f := range []family{ipv4, ipv6} {
		var flowers []flowerKey
		var all []entry
		for i := range rules {
			if rules[i].ProxyOnly() {
				continue
			}
			class := t.leaves[rules[i].Class]
			if class == 0 {
				class = htbHandle + policy.UnmatchedMinor
			}
			if len(flowers) <= longList {
				flowers = append(flowers, flowerKeys(&rules[i], f, class)...)
			}
			all = append(all, entries(&rules[i], f, class)...)
			if total+len(all) > policy.MaxFilters {
				return fmt.Errorf("the rules for %s come to more than %d filters; use fewer addresses or ports", t.name, policy.MaxFilters)
			}
		}
		total += len(all)
		if t.device.Kinds.Flower && len(flowers) <= longList {
			t.objects = append(t.objects, flowerList(t.name, htbHandle, f, flowers)...)
		} else {
			t.objects = append(t.objects, u32List(t.name, htbHandle, slot{f, 0}, all)...)
		}
	}
	return nil
}
