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
		Description: "Each section [tc.DEVICE] of the policy shapes a network device. Without DEVICE a command is about all of them.\n" +
			"It takes the capability CAP_NET_ADMIN.",
		Subcommands: []*cli.Command{
			one("plan", "print the tc commands that the policy comes to, and what the kernel lacks", tcPlan),
			one("apply", "make the kernel equal to the policy, in place", tcApply),
			show,
			one("clear", "take away what shaper has put into the kernel", tcClear),
		},
		Action: noSubcommand,
	}
}

// noSubcommand is what happens without a subcommand, or with one that there is not.
func noSubcommand(c *cli.Context) error {
	if name := c.Args().First(); name != "" {
		return usageError("there is no command %q; %s", "tc "+name, suggest(name, c.Command.Subcommands))
	}
	return usageError("a command is missing; shaper tc plan, apply, show or clear")
}

// withKernel makes an action of what is done with the kernel and the sections that
// are meant.
func withKernel(f func(*cli.Context, *tc.Kernel, *policy.Policy, []policy.TC) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		path, _ := configPath(c)
		p, _, err := load(c, path)
		if err != nil && c.Command.Name == "clear" && c.NArg() == 1 { // it takes no policy
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

// sectionsOf returns the sections that a command is about. A device that the policy
// does not have any more can still be cleared.
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

// completeDevices completes an argument to the devices of the policy.
func completeDevices(c *cli.Context) {
	path, _ := configPath(c)
	p, _, err := policy.Load(path)
	if err != nil || c.NArg() > 0 {
		return
	}
	for _, t := range p.TC {
		fmt.Fprintln(c.App.Writer, t.Device)
	}
}

// planFor returns what a section comes to on its device.
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

// printPreview prints a script, with what is to be done in its comments.
func printPreview(w io.Writer, p tc.Preview) {
	fmt.Fprintf(w, "# %s\n", p.Device)
	for _, line := range p.Commands {
		fmt.Fprintln(w, line)
	}
	if len(p.Changes) == 0 {
		fmt.Fprintf(w, "# the kernel has it all\n")
		return
	}
	fmt.Fprintf(w, "# to do, %d of the kernel's objects:\n", len(p.Changes))
	signs := map[string]string{"add": "+", "replace": "+", "change": "~", "delete": "-"}
	for _, s := range p.Changes {
		fmt.Fprintf(w, "# %s %s\n", signs[s.Op], s.Command)
	}
}

// tcDone is what has been done to a device.
type tcDone struct {
	Device  string `json:"device"`
	Changes int    `json:"changes"`
}

func tcApply(c *cli.Context, k *tc.Kernel, p *policy.Policy, sections []policy.TC) error {
	return eachSection(c, sections, "changed", func(section policy.TC) (int, error) {
		d, plan, err := planFor(k, p, section)
		if err != nil {
			return 0, err
		}
		return k.Apply(d, plan, section.TakeOver)
	})
}

func tcClear(c *cli.Context, k *tc.Kernel, p *policy.Policy, sections []policy.TC) error {
	return eachSection(c, sections, "cleared", func(section policy.TC) (int, error) {
		d, err := k.Device(section.Device)
		if errors.Is(err, tc.ErrNoDevice) {
			return k.Sweep() // it went, and what it had went with it, but for what arrived
		}
		if err != nil {
			return 0, err
		}
		var plan []tc.Object
		if section.Class != "" {
			plan, _ = tc.Plan(p, section, d) // whatever has become of the policy, all of ours goes
		}
		return k.Clear(d, plan)
	})
}

// eachSection does something to each device, goes on after an error, and prints what
// has been done.
func eachSection(c *cli.Context, sections []policy.TC, done string, do func(policy.TC) (int, error)) error {
	all, errs := []tcDone{}, []error{}
	for _, section := range sections {
		changes, err := do(section)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, tcDone{section.Device, changes})
	}
	if c.Bool("json") {
		errs = append(errs, printJSON(c, all))
	} else {
		for _, one := range all {
			fmt.Fprintf(c.App.Writer, "%s: %s %d of the kernel's objects\n", one.Device, done, one.Changes)
		}
	}
	return errors.Join(errs...)
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
