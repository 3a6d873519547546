package tc

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shaper/tc/tctest"
)

// Show returns the names of classes, the words of tc(8) and the counters.
func TestShow(t *testing.T) {
	p, s := section(t, treeText(t))
	r := newRig(t)
	r.mustApply(treePlan(t))
	r.fake.Count("eth0", uint32(htbHandle|0x61c2), tctest.Counters{Bytes: 1 << 40, Packets: 1 << 33, Queue: 2, Backlog: 3, Dropped: 4, Requeues: 5, Overlimits: 6})
	all, err := r.Show(r.eth0, p, s)
	if err != nil {
		t.Fatal(err)
	}
	at := func(typ Type, handle string) Shown {
		t.Helper()
		i := slices.IndexFunc(all, func(s Shown) bool { return s.Type == typ && s.Handle == handle })
		if i < 0 {
			t.Fatalf("no %s %s in %v", typ, handle, all)
		}
		return all[i]
	}
	for _, want := range []Shown{
		{Type: Class, Device: "eth0", Kind: "htb", Handle: "5ca0:61c2", Parent: "5ca0:36f0", Class: "otp",
			Words:  "rate 1000000bit ceil 8000000bit burst 3029 cburst 3030 prio 0 quantum 3217",
			Counts: Counters{Bytes: 1 << 40, Packets: 1 << 33, Queue: 2, Backlog: 3, Dropped: 4, Requeues: 5, Overlimits: 6}},
		{Type: Class, Device: "eth0", Kind: "htb", Handle: "5ca0:62d", Parent: "5ca0:36f0", Class: "acme/",
			Words: "rate 8000bit ceil 8000000bit burst 3029 cburst 3030 prio 4 quantum 3217"},
		{Type: Qdisc, Device: "eth0", Kind: "htb", Handle: "5ca0:", Parent: "root", Words: "default 0x1"},
		{Type: Qdisc, Device: "eth0", Kind: "bfifo", Handle: "3767:", Parent: "5ca0:3767", Words: "limit 65536"},
		{Type: Filter, Device: "eth0", Kind: "u32", Handle: "::1", Parent: "5ca0:", Pref: 10, Class: "otp",
			Words: "match u32 0x0a010000 0xffff0000 at 12 flowid 5ca0:61c2"},
	} {
		if d := cmp.Diff(want, at(want.Type, want.Handle)); d != "" {
			t.Error(d)
		}
	}
	if at(Class, "5ca0:1").Class != "unmatched" || at(Class, "5ca0:fff0").Class != "note" {
		t.Errorf("%+v, %+v", at(Class, "5ca0:1"), at(Class, "5ca0:fff0"))
	}
}

// Count returns the counters of what leaves and of what arrives apart. It leaves out classes
// without a name in the policy.
func TestCount(t *testing.T) {
	p, s := section(t, treeText(t, "class = \"uplink\"", "class = \"uplink\"\ningress = \"bulk\""))
	r := newRig(t)
	r.mustApply(bothWays(t))
	r.fake.Count("eth0", uint32(htbHandle|0x1f52), tctest.Counters{Bytes: 7, Packets: 1})
	r.fake.Count("shaper2", uint32(tbfHandle), tctest.Counters{Bytes: 9, Packets: 2})
	r.fake.Between = func(q tctest.Request, do func() error) error {
		if q.Parent == uint32(htbHandle) {
			t.Errorf("Count reads filters: %v", q)
		}
		return do()
	}
	leaving, arriving, err := r.Count(r.eth0, p, s)
	if err != nil || leaving["bulk"] != (Counters{Bytes: 7, Packets: 1}) || arriving["bulk"] != (Counters{Bytes: 9, Packets: 2}) {
		t.Errorf("%v, %v, %v", leaving, arriving, err)
	}
	if names := len(leaving); names != 5 || len(arriving) != 1 {
		t.Errorf("%v, %v", leaving, arriving)
	}
	r.fake.Unplug("eth0")
	if _, _, err := r.Count(r.eth0, p, s); err == nil {
		t.Error("Count returns counters of a device that is gone")
	}
}

// The drops of a class without children are those of its queue. HTB counts only those in which the queue
// refuses the packet, and fq_codel drops others: of the flow that has the most, or when they leave.
func TestCountDrops(t *testing.T) {
	p, s := section(t, treeText(t, "class = \"uplink\"", "class = \"uplink\"\ningress = \"bulk\""))
	r := newRig(t)
	r.mustApply(bothWays(t))
	r.fake.Count("eth0", uint32(htbHandle|0x1f52), tctest.Counters{Bytes: 7, Packets: 1, Dropped: 2})
	r.fake.Count("eth0", uint32(handleOf(0x1f52, 0)), tctest.Counters{Bytes: 8, Packets: 3, Dropped: 64})
	r.fake.Count("eth0", uint32(htbHandle), tctest.Counters{Dropped: 66})
	r.fake.Count("shaper2", uint32(tbfHandle), tctest.Counters{Dropped: 5})
	leaving, arriving, err := r.Count(r.eth0, p, s)
	if err != nil || leaving["bulk"] != (Counters{Bytes: 7, Packets: 1, Dropped: 64}) || leaving["uplink"].Dropped != 0 || arriving["bulk"].Dropped != 5 {
		t.Errorf("%v, %v, %v", leaving, arriving, err)
	}
}

// A lone class has the name in its section, on both devices. Filters of flower have the
// names of their classes.
func TestShowOthers(t *testing.T) {
	text := "[class.a]\nrate = \"3mbit\"\n[class.b]\nrate = \"1mbit\"\n[tc.eth0]\nclass = \"a\"\ningress = \"b\"\n"
	p, s := section(t, text)
	r := newRig(t)
	r.mustApply(mustPlan(t, text, eth0))
	all, err := r.Show(r.eth0, p, s)
	if err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]string{"eth0": "a", "shaper2": "b"} {
		if !slices.ContainsFunc(all, func(s Shown) bool { return s.Device == device && s.Kind == "tbf" && s.Class == want }) {
			t.Errorf("%s: %v", device, all)
		}
	}
	r = newRig(t)
	d := eth0
	d.Kinds = Kinds{true, true, true}
	p, s = section(t, treeText(t))
	r.mustApply(mustPlan(t, treeText(t), d))
	if all, err = r.Show(r.eth0, p, s); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(s Shown) bool {
		return s.Kind == "flower" && s.Class == "otp" && s.Words == "src_ip 10.1.0.0/16 classid 5ca0:61c2"
	}) {
		t.Errorf("%v", all)
	}
}

// Preview returns the command of each change, and changes nothing.
func TestPreview(t *testing.T) {
	r := newRig(t)
	r.mustApply(bothWays(t))
	before := r.state()
	r.fake.Between = func(q tctest.Request, do func() error) error {
		if q.IsChange() {
			t.Errorf("a change is requested: %v", q)
		}
		return do()
	}
	next := treePlan(t, "rate = \"2mbit\"", "rate = \"3mbit\"")
	p, err := r.Preview(r.eth0, next, false)
	if err != nil || p.Device != "eth0" || len(p.Commands) != len(next) {
		t.Fatal(p, err)
	}
	var got []string
	for _, s := range p.Changes {
		got = append(got, s.Command)
	}
	want := []string{
		"tc class change dev eth0 parent 5ca0:4365 classid 5ca0:1f52 htb rate 3000000bit ceil 10000000bit burst 3029 cburst 3030 prio 4 quantum 9651",
		"tc filter del dev eth0 parent ffff: protocol all pref 23712",
		"tc filter del dev eth0 parent 5ca0: protocol all pref 1 handle 0x1 bpf",
		"tc qdisc del dev eth0 ingress",
		"tc qdisc del dev shaper2 root handle 5ca1: tbf",
		"ip link del dev shaper2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r.holdsState(before)
}

// Each change has its command.
func TestCommands(t *testing.T) {
	key := u32Key{Class: htbHandle | 7}
	key.Selector.add(12, 1, 0xff)
	filter := func(h Handle, p Params) Object {
		return Object{Type: Filter, Device: "eth0", Handle: h, Parent: htbHandle, Kind: "u32", Pref: u32Pref(slot{ipv6, 1}), Params: p}
	}
	for want, o := range map[string]op{
		"ip link set dev shaper2 up":                                                         {change, Object{Type: Link, Device: "shaper2", Kind: "ifb", Params: ifb{}}},
		"ip link add dev shaper2 type ifb && ip link set dev shaper2 up":                     {add, Object{Type: Link, Device: "shaper2", Kind: "ifb", Params: ifb{}}},
		"ip link set dev eth0 gso_max_size 9":                                                {change, Object{Type: Link, Device: "eth0", Kind: "sizes", Params: linkSizes{9, 9}}},
		"tc qdisc replace dev eth0 parent 5ca0:7 handle 7: sfq limit 5":                      {replace, Object{Type: Qdisc, Device: "eth0", Handle: 7 << 16, Parent: htbHandle | 7, Kind: "sfq", Params: sfq{5}}},
		"tc qdisc change dev eth0 root handle 9: fq_codel limit 5":                           {change, Object{Type: Qdisc, Device: "eth0", Handle: 9 << 16, Parent: rootParent, Kind: "fq_codel", Params: fqCodel{5}}},
		"tc qdisc change dev eth0 root handle 9: cake ...":                                   {change, Object{Type: Qdisc, Device: "eth0", Handle: 9 << 16, Parent: rootParent, Kind: "cake", Params: opaque{"x"}}},
		"tc filter add dev eth0 parent 5ca0: protocol ipv6 pref 21 handle 5: u32 divisor 16": {add, filter(u32Node(5, 0, 0), u32Table{16})},
		"tc filter add dev eth0 parent 5ca0: protocol ipv6 pref 21 handle 5:a:3 u32 ht 5:a: match u32 0x00000001 0x000000ff at 12 flowid 5ca0:7": {add, filter(u32Node(5, 10, 3), key)},
		"tc filter del dev eth0 parent 5ca0: protocol ipv6 pref 21":                                                                              {del, filter(0, wholeList{})},
	} {
		if got := o.command(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if !strings.Contains(op{add, filter(0, wholeList{})}.command(), "pref 21") || wholeList.words(wholeList{}) != "" || wholeList.options(wholeList{}) != nil {
		t.Error("a whole list")
	}
}

// Handles are printed as tc(8) prints them.
func TestHandles(t *testing.T) {
	for want, h := range map[string]Handle{"root": rootParent, "ingress": ingressParent, "ffff:": ingressHandle, "5ca0:": htbHandle, "5ca0:1f": htbHandle | 0x1f} {
		if b, err := h.MarshalText(); h.String() != want || string(b) != want || err != nil {
			t.Errorf("%v, %s, %v", h, b, err)
		}
	}
	for want, h := range map[string]Handle{"800:2:7": u32Node(0x800, 2, 7), "::7": 7, "800::": u32Node(0x800, 0, 0)} {
		if got := u32Handle(h).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The error of Permitted says what to do.
func TestPermitted(t *testing.T) {
	if err := Permitted(); err != nil && !strings.Contains(err.Error(), "setcap cap_net_admin+ep") {
		t.Error(err)
	}
}

// Values that are cut short are read as missing.
func TestShortMessages(t *testing.T) {
	m := attrs{1: {1, 2}, 2: nil}
	if m.u32(1) != 0 || m.u64(1) != 0 || m.text(2) != "" || m.text(9) != "" {
		t.Error("a value that is too short is not 0")
	}
	if parseCounters([]byte{1, 2, 3}) != (Counters{}) || len(parseAttrs([]byte{1})) != 0 {
		t.Error("counters of nothing are not 0")
	}
	for _, kind := range []string{"htb", "tbf", "pfifo", "fq_codel", "sfq", "u32", "flower", "bpf"} {
		for n := range 12 {
			parseQdisc(kind, make([]byte, n))
			parseClass(kind, make([]byte, n))
			parseU32(make([]byte, n), func(uint32) string { return "" })
			parseFlower(make([]byte, n))
			parseBPF(make([]byte, n))
		}
	}
}
