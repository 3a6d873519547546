package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"shaper/policy"
	"shaper/tc"
)

func tcCommand() *cli.Command {
	one := func(name, usage string, action func(*cli.Context, *tc.Kernel, *policy.Policy, []policy.TC) error) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: "[DEVICE]", Flags: []cli.Flag{jsonFlag()}, Action: withKernel(action), BashComplete: completeDevices}
	}
	show := one("show", "show what is in the kernel, with its counters", tcShow)
	show.Flags, show.Action = append(show.Flags, watchFlag()), watched(show.Action)
	return &cli.Command{
		Name:  "tc",
		Usage: "put the policy into the kernel, as qdiscs",
		Description: "Each section [tc.DEVICE] of the policy shapes a network device. Without DEVICE a command applies to all of them.\n" +
			"The commands need the capability CAP_NET_ADMIN.",
		Subcommands: []*cli.Command{
			one("plan", "print the policy as tc commands, and what the kernel lacks", tcPlan),
			one("apply", "make the kernel equal to the policy, in place", tcApply),
			show,
			one("clear", "remove what shaper has put into the kernel", tcClear),
		},
		Action: noSubcommand("tc", "plan, apply, show or clear"),
	}
}

// withKernel returns an action that calls f with the kernel, the policy, and the sections that the
// arguments select.
func withKernel(f func(*cli.Context, *tc.Kernel, *policy.Policy, []policy.TC) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		path, _ := configPath(c)
		p, _, err := loadPolicy(c, path)
		if err != nil && c.Command.Name == "clear" && c.NArg() == 1 { // clear needs no policy
			p, err = &policy.Policy{Path: path}, nil
		}
		if err != nil {
			return err
		}
		if err := tc.Permitted(); err != nil {
			return err
		}
		sections, err := sectionsOf(c, p)
		if err != nil {
			return err
		}
		k, err := tc.Open()
		if err != nil {
			return err
		}
		defer k.Close()
		return f(c, k, p, sections)
	}
}

// sectionsOf returns the sections that the arguments select. For clear, the policy need not have
// the device any longer.
func sectionsOf(c *cli.Context, p *policy.Policy) ([]policy.TC, error) {
	name := c.Args().First()
	if name == "" {
		if len(p.TC) == 0 {
			return nil, fmt.Errorf("shaper: %s has no section [tc.DEVICE]", p.Path)
		}
		return p.TC, nil
	}
	i := slices.IndexFunc(p.TC, func(t policy.TC) bool { return t.Device == name })
	switch {
	case i >= 0:
		return p.TC[i : i+1], nil
	case c.Command.Name == "clear":
		return []policy.TC{policy.DefaultTC(name)}, nil
	}
	return nil, usageError("%s has no section [tc.%s]", p.Path, name)
}

// completeDevices completes the argument to the devices of the policy.
func completeDevices(c *cli.Context) {
	if completeFlags(c) {
		return
	}
	path, _ := configPath(c)
	p, _, err := policy.Load(path)
	if err != nil || c.NArg() > 0 {
		return
	}
	for _, t := range p.TC {
		fmt.Fprintln(c.App.Writer, t.Device)
	}
}

// planFor returns the device of a section, and the objects that the section puts there.
func planFor(k *tc.Kernel, p *policy.Policy, section policy.TC) (tc.Device, []tc.Object, error) {
	d, err := k.Device(section.Device)
	if err != nil {
		return d, nil, err
	}
	plan, err := tc.Plan(p, section, d)
	return d, plan, err
}

func tcPlan(c *cli.Context, k *tc.Kernel, p *policy.Policy, sections []policy.TC) error {
	previews := []tc.Preview{}
	for _, section := range sections {
		d, plan, err := planFor(k, p, section)
		if err != nil {
			return err
		}
		preview, err := k.Preview(d, plan, section.TakeOver)
		if err != nil {
			return err
		}
		previews = append(previews, preview)
	}
	if c.Bool("json") {
		return printJSON(c, previews)
	}
	for _, one := range previews {
		printPreview(c.App.Writer, one)
	}
	return nil
}

// printPreview prints a plan as a script. Its comments say what apply would change.
func printPreview(w io.Writer, p tc.Preview) {
	fmt.Fprintf(w, "# %s\n", p.Device)
	for _, line := range p.Commands {
		fmt.Fprintln(w, line)
	}
	if len(p.Changes) == 0 {
		fmt.Fprintf(w, "# the kernel has everything\n")
		return
	}
	fmt.Fprintf(w, "# to do for %d of the kernel's objects:\n", len(p.Changes))
	signs := map[string]string{"add": "+", "replace": "+", "change": "~", "delete": "-"}
	for _, s := range p.Changes {
		fmt.Fprintf(w, "# %s %s\n", signs[s.Op], s.Command)
	}
}

// tcDone is what apply or clear has done to a device.
type tcDone struct {
	Device  string `json:"device"`
	Changes int    `json:"changes"`
}

func tcApply(c *cli.Context, k *tc.Kernel, p *policy.Policy, sections []policy.TC) error {
	return forEachSection(c, sections, policy.Change{Op: "+", New: "policy " + p.Hash + ", "}, "changed", func(section policy.TC) (int, error) {
		d, plan, err := planFor(k, p, section)
		if err != nil {
			return 0, err
		}
		return k.Apply(d, plan, section.TakeOver)
	})
}

func tcClear(c *cli.Context, k *tc.Kernel, p *policy.Policy, sections []policy.TC) error {
	defer warnOfDaemon(c, sections)
	return forEachSection(c, sections, policy.Change{Op: "-"}, "cleared", func(section policy.TC) (int, error) {
		d, err := k.Device(section.Device)
		if errors.Is(err, tc.ErrNoDevice) {
			return sweep(k, section) // the device took its qdiscs with it, but not those of its mirror
		}
		if err != nil {
			return 0, err
		}
		var plan []tc.Object
		if section.Class != "" {
			plan, _ = tc.Plan(p, section, d) // Clear removes all of ours even without a plan
		}
		return k.Clear(d, plan)
	})
}

// sweep removes the mirrors of devices that have gone. It is an error if there was none, and the name of the device
// stands on the command line alone.
func sweep(k *tc.Kernel, section policy.TC) (deleted int, err error) {
	if deleted, err = k.Sweep(); deleted > 0 || err != nil || section.Class != "" {
		return deleted, err
	}
	return 0, usageError("there is no network device %q, and the policy has no section [tc.%s]; `ip link` shows the devices", section.Device, section.Device)
}

// warnOfDaemon says of which sections a daemon puts back what was cleared.
func warnOfDaemon(c *cli.Context, sections []policy.TC) {
	d, err := client(c)
	if err != nil {
		return
	}
	inForce, err := d.Policy(c.Context)
	if err != nil {
		return // none runs, or none that we may ask
	}
	for _, kept := range inForce.TC {
		if kept.Apply && slices.ContainsFunc(sections, func(t policy.TC) bool { return t.Device == kept.Device }) {
			fmt.Fprintf(c.App.ErrWriter, "warning: %s: a daemon runs that puts it back; to end that, stop it and clear again, or take apply = true out of its policy and reload\n", kept.Device)
		}
	}
}

// forEachSection calls do for each section, also after an error, and prints what was done. It records what
// has changed; change says more about that.
func forEachSection(c *cli.Context, sections []policy.TC, change policy.Change, done string, do func(policy.TC) (int, error)) error {
	all, errs, noted := []tcDone{}, []error{}, []policy.Change{}
	for _, section := range sections {
		changes, err := do(section)
		if changes > 0 && (err == nil || change.Op == "-") { // apply undoes what it cannot finish
			noted = append(noted, noteOf(change, section.Device, changes))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, tcDone{section.Device, changes})
	}
	note(c, "tc "+c.Command.Name, noted...)
	if c.Bool("json") {
		errs = append(errs, printJSON(c, all))
	} else {
		for _, one := range all {
			fmt.Fprintf(c.App.Writer, "%s: %s %d of the kernel's objects\n", one.Device, done, one.Changes)
		}
	}
	return errors.Join(errs...)
}

// noteOf returns what the history records of a device: c, with the name of the device, and with how many
// objects have changed, or were removed if c.Op is "-".
func noteOf(c policy.Change, device string, objects int) policy.Change {
	c.What, c.Name = "tc", device
	if c.Op == "-" {
		c.Old = fmt.Sprintf("%d of the kernel's objects", objects)
	} else {
		c.New += fmt.Sprintf("%d of the kernel's objects changed", objects)
	}
	return c
}

func tcShow(c *cli.Context, k *tc.Kernel, p *policy.Policy, sections []policy.TC) error {
	all := []tc.Shown{}
	for _, section := range sections {
		d, err := k.Device(section.Device)
		if err != nil {
			return err
		}
		shown, err := k.Show(d, p, section)
		if err != nil {
			return err
		}
		all = append(all, shown...)
	}
	if c.Bool("json") {
		return printJSON(c, all)
	}
	printShown(c.App.Writer, all)
	return nil
}

// printShown prints qdiscs and classes with their counters, then filters.
func printShown(w io.Writer, all []tc.Shown) {
	counted := table{header: []string{"DEVICE", "OBJECT", "HANDLE", "PARENT", "CLASS", ">BYTES", ">PACKETS", ">DROPPED", ">OVERLIMITS", ">BACKLOG", ">QUEUE", "SETTINGS"},
		spare: []string{"SETTINGS", "QUEUE", "OVERLIMITS", "PARENT", "BACKLOG", "PACKETS", "HANDLE"}}
	filters := table{header: []string{"DEVICE", "FILTER", ">PREF", "HANDLE", "CLASS", "SETTINGS"}, spare: []string{"HANDLE", "PREF"}}
	found := false
	for _, o := range all {
		if n := o.Counts; o.Type != tc.Filter {
			counted.add(o.Device, string(o.Type)+" "+o.Kind, o.Handle, o.Parent, orDash(o.Class), fmt.Sprint(n.Bytes), fmt.Sprint(n.Packets),
				fmt.Sprint(n.Dropped), fmt.Sprint(n.Overlimits), fmt.Sprint(n.Backlog), fmt.Sprint(n.Queue), o.Words)
			continue
		}
		found = true
		filters.add(o.Device, o.Kind, fmt.Sprint(o.Pref), o.Handle, orDash(o.Class), o.Words)
	}
	counted.write(w, "")
	if found {
		fmt.Fprintln(w)
		filters.write(w, "")
	}
}
