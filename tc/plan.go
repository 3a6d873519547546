package tc

import (
	"fmt"

	"shaper/policy"
)

// Plan returns the objects that put a section of the policy into the kernel. Each comes
// after what it needs. The policy must come from Load, which refuses what no kernel can
// do. Plan returns an error for what this device cannot do.
func Plan(p *policy.Policy, section policy.TC, d Device) ([]Object, error) {
	b := &builder{policy: p, section: section, device: d, minors: p.Minors()}
	objects, err := b.tree(d.Name, section.Class)
	if err != nil || section.Ingress == "" {
		return objects, err
	}
	arriving, err := b.tree(d.mirror(), section.Ingress)
	if err != nil {
		return nil, err
	}
	return append(objects, b.ingress(arriving)...), nil
}

// builder makes the objects of one section.
type builder struct {
	policy  *policy.Policy
	section policy.TC
	device  Device
	minors  map[string]uint16
}

// ingress returns the objects that move what arrives to an ifb, where it passes a tree.
func (b *builder) ingress(tree []Object) []Object {
	name, mirror := b.device.Name, b.device.mirror()
	all := append([]Object{{Type: Link, Device: mirror, Kind: "ifb", Params: ifb{}}}, tree...)
	redirect := u32Key{Redirect: mirror}
	redirect.Selector.add(0, 0, 0)
	return append(all,
		Object{Type: Qdisc, Device: name, Handle: ingressHandle, Parent: ingressParent, Kind: "ingress", Params: noParams{}},
		Object{Type: Filter, Device: name, Handle: u32Node(0, 0, 1), Parent: ingressHandle, Kind: "u32", Pref: ingressPref, Params: redirect})
}

// tree returns the objects of a device for the tree of a class.
func (b *builder) tree(device, root string) ([]Object, error) {
	t := &tree{builder: b, name: device, classes: b.policy.Tree(root), under: map[string][]*policy.Class{}, leaves: map[string]Handle{}}
	for i := range t.classes {
		if c := &t.classes[i]; i > 0 {
			t.under[c.Parent] = append(t.under[c.Parent], c)
		}
		if err := t.fits(&t.classes[i]); err != nil {
			return nil, err
		}
	}
	if len(t.classes) == 1 {
		return t.lone(&t.classes[0]), nil
	}
	t.htb()
	if err := t.filters(); err != nil {
		return nil, err
	}
	return t.objects, nil
}

// fits returns an error if the device's frames are too long for a class. Load has checked
// the policy for frames of Ethernet only.
func (t *tree) fits(c *policy.Class) error {
	why, frame := "", t.device.frame()
	switch limit := bytesPerSecond(c.Limit(), c); {
	case !c.Burst.IsZero() && uint64(c.Burst.N) < 2*frame:
		why = fmt.Sprintf("its burst %v is less than two", c.Burst)
	case limit*longestBucket < 2*frame:
		why = fmt.Sprintf("at %v it takes minutes to send two", c.Limit())
	default:
		return nil
	}
	return fmt.Errorf("class %q cannot be put on %s: %s of the device's frames, of %d bytes each; raise it, or lower the MTU", c.Name, t.device.Name, why, frame)
}
