package tc

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Step is one change of the kernel, and the command that makes it by hand.
type Step struct {
	Op      string `json:"op"` // "add", "change", "replace" or "delete"
	Device  string `json:"device"`
	Object  string `json:"object"` // "class htb 5ca0:1f"
	Command string `json:"command"`
}

// Preview is a plan for a device, and the changes that it still needs.
type Preview struct {
	Device   string   `json:"device"`
	Commands []string `json:"commands"` // the whole plan, for a device without our objects
	Changes  []Step   `json:"changes"`  // what makes the kernel equal to the plan
}

// Preview returns what Apply would do, and changes nothing. It fails where Apply would.
func (k *Kernel) Preview(d Device, plan []Object, takeOver bool) (Preview, error) {
	s, err := k.readFor(d, plan, takeOver)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Device: d.Name, Commands: commands(complete(plan, s)), Changes: []Step{}}
	for _, o := range diff(plan, s) {
		p.Changes = append(p.Changes, Step{string(o.verb), o.object.Device, o.object.String(), o.command()})
	}
	return p, nil
}

// commands returns the commands that add objects.
func commands(all []Object) []string {
	lines := make([]string, len(all))
	for i, o := range all {
		lines[i] = op{add, o}.command()
	}
	return lines
}

// tcVerbs are the words of tc(8) for the verbs.
var tcVerbs = map[verb]string{add: "add", change: "change", replace: "replace", del: "del"}

// command returns the command line that makes the same change.
func (o op) command() string {
	t, v := o.object, tcVerbs[o.verb]
	switch t.Type {
	case Link:
		return o.linkCommand()
	case Qdisc:
		if t.Parent == ingressParent {
			return o.line("tc qdisc %s dev %s ingress", v, t.Device)
		}
		return o.line("tc qdisc %s dev %s %s %s", v, t.Device, parentWords(t), t.Kind)
	case Class:
		return o.line("tc class %s dev %s parent %s classid %s %s", v, t.Device, t.within(), t.Handle, t.Kind)
	}
	list := fmt.Sprintf("tc filter %s dev %s parent %s protocol %s pref %d", v, t.Device, t.Parent, protocolWord(t.Pref.Protocol), t.Pref.Priority)
	if _, all := t.Params.(wholeList); all {
		return list
	}
	switch {
	case t.Kind != "u32":
		return o.line("%s handle 0x%x %s", list, uint32(t.Handle), t.Kind)
	case t.Handle&u32Places == 0:
		return o.line("%s handle %x: u32", list, t.Handle.table())
	case t.Handle.table() != 0:
		return o.line("%s handle %s u32 ht %x:%x:", list, u32Handle(t.Handle), t.Handle.table(), uint32(t.Handle)>>12&0xff)
	}
	return o.line("%s handle %s u32", list, u32Handle(t.Handle))
}

// line returns a command with the parameters of the object appended, unless it deletes the
// object.
func (o op) line(format string, args ...any) string {
	words := ""
	if o.verb != del {
		words = " " + o.object.Params.words()
	}
	return strings.TrimRight(fmt.Sprintf(format, args...)+words, " ")
}

// parentWords returns parent and handle of a qdisc, as tc(8) takes them.
func parentWords(o Object) string {
	if o.Parent == rootParent {
		return "root handle " + o.Handle.String()
	}
	return fmt.Sprintf("parent %s handle %s", o.Parent, o.Handle)
}

func (o op) linkCommand() string {
	name := o.object.Device
	switch {
	case o.verb == del:
		return "ip link del dev " + name
	case o.object.Kind == "ifb" && o.verb == change:
		return fmt.Sprintf("ip link set dev %s up", name)
	case o.object.Kind == "ifb":
		return fmt.Sprintf("ip link add dev %s type ifb && ip link set dev %s up", name, name)
	}
	return fmt.Sprintf("ip link set dev %s %s", name, o.object.Params.words())
}

func protocolWord(p uint16) string {
	switch p {
	case unix.ETH_P_IP:
		return "ip"
	case unix.ETH_P_IPV6:
		return "ipv6"
	}
	return "all"
}
