package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/tc"
)

// kernel keeps the sections [tc.DEVICE] that ask for it in the kernel. What is there
// stays when the daemon stops, as what tc(8) has made does.
type kernel struct {
	log     *slog.Logger
	devices atomic.Pointer[map[string]bool] // to be watched
	changed chan struct{}                   // of capacity 1: something has changed

	connect func() (*tc.Kernel, error) // tc.ErrNotPermitted: it is off
	watch   func(ctx context.Context, interest func(string) bool, changed func(string)) error

	mu      sync.Mutex
	netlink *tc.Kernel     // nil until it is needed
	policy  *policy.Policy // in force; nil: none has been
	said    map[string]bool
}

func newKernel(log *slog.Logger) *kernel {
	return &kernel{log: log, changed: make(chan struct{}, 1), connect: connect, watch: tc.Watch, said: map[string]bool{}}
}

// connect connects to the kernel of the machine, if the process may change it.
func connect() (*tc.Kernel, error) {
	if err := tc.Permitted(); err != nil {
		return nil, err
	}
	return tc.Open()
}

// Times of the kernel's keeper.
const (
	settling = 50 * time.Millisecond // changes come in bursts
	slowest  = time.Second           // where somebody changes it again and again
	retrying = 10 * time.Second      // after an error
)

// applied returns the sections that the daemon is to keep.
func applied(p *policy.Policy) (sections []policy.TC) {
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.TC), func(t policy.TC) bool { return !t.Apply })
}

// prepare puts a policy into the kernel, or leaves it as it was: it comes last before
// a commit, since it may fail. Commit, which cannot, takes away what the policy does
// not have any more.
func (k *kernel) prepare(p *policy.Policy) (commit func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.policy
	if err := k.open(p); err != nil {
		return nil, err
	}
	if k.netlink == nil { // nothing to do, or not permitted
		k.follow(&policy.Policy{})
		return func() {}, nil
	}
	if _, err := k.apply(p); err != nil {
		k.undo(before, p)
		return nil, err
	}
	k.follow(p)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.clear(before, p)
	}, nil
}

// undo puts the policy before into the kernel again, and takes away what another has put
// on devices that it leaves alone. At a start there is none: what is there stays, as when
// the daemon stops.
func (k *kernel) undo(before, p *policy.Policy) {
	if before == nil {
		return
	}
	if _, err := k.apply(before); err != nil {
		k.log.Error("the kernel could not be given back the policy before", "err", err)
	}
	k.clear(p, before)
}

// open connects to the kernel where a policy is to be put there, and where that is
// permitted. It says so once where it is not.
func (k *kernel) open(p *policy.Policy) (err error) {
	marks := slices.ContainsFunc(p.TC, func(t policy.TC) bool { return t.Mark })
	if k.netlink != nil || len(applied(p)) == 0 && !marks {
		return nil
	}
	if k.netlink, err = k.connect(); errors.Is(err, tc.ErrNotPermitted) {
		k.say("THE KERNEL PART IS OFF: the sections [tc.DEVICE] are not applied and nothing is marked; the proxy runs", "err", err)
		return nil
	}
	return err
}

// say logs a warning once.
func (k *kernel) say(message string, about ...any) {
	if line := fmt.Sprint(message, about); !k.said[line] {
		k.said[line] = true
		k.log.Warn(message, about...)
	}
}

// follow makes a policy the one that is kept.
func (k *kernel) follow(p *policy.Policy) {
	names := map[string]bool{}
	for _, t := range applied(p) {
		names[t.Device] = true
	}
	k.policy = p
	k.devices.Store(&names)
	if len(names) > 0 {
		k.wake("") // there is something to watch
	}
}

// apply makes the kernel equal to the sections of a policy, and returns how many
// objects it has changed. A device that does not exist is waited for.
func (k *kernel) apply(p *policy.Policy) (changes int, err error) {
	var errs []error
	for _, section := range applied(p) {
		n, err := k.applySection(p, section)
		changes += n
		switch {
		case errors.Is(err, tc.ErrNoDevice):
			k.say("waiting for a network device", "device", section.Device)
			_, err := k.netlink.Sweep()
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, fmt.Errorf("tc.%s: %w", section.Device, err))
		}
	}
	return changes, errors.Join(errs...)
}

func (k *kernel) applySection(p *policy.Policy, section policy.TC) (changes int, err error) {
	d, err := k.netlink.Device(section.Device)
	if err != nil {
		return 0, err
	}
	plan, err := tc.Plan(p, section, d)
	if err != nil {
		return 0, err
	}
	return k.netlink.Apply(d, plan, section.TakeOver)
}

// clear takes away what one policy had put on devices that another one leaves alone.
func (k *kernel) clear(before, now *policy.Policy) {
	for _, was := range applied(before) {
		if slices.ContainsFunc(applied(now), func(t policy.TC) bool { return t.Device == was.Device }) {
			continue
		}
		d, err := k.netlink.Device(was.Device)
		if err == nil {
			plan, _ := tc.Plan(before, was, d) // without it goes all the same, but for sizes that are noted nowhere
			_, err = k.netlink.Clear(d, plan)
		}
		if err != nil && !errors.Is(err, tc.ErrNoDevice) {
			k.log.Error("a device could not be cleared", "device", was.Device, "err", err)
		}
	}
}

// set puts other values of a policy into the kernel. What fails is tried again.
func (k *kernel) set(p *policy.Policy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink == nil {
		return
	}
	k.follow(p)
	if _, err := k.apply(p); err != nil {
		k.log.Error("the kernel has not taken a change; it is tried again", "err", err)
		k.wake("")
	}
}

// run keeps the kernel as the policy has it, until ctx ends: after a link has come
// back, and after others have changed it. It watches from when there is something to
// be kept.
func (k *kernel) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watch := sync.OnceFunc(func() {
		watching.Go(func() {
			if err := k.watch(ctx, k.watched, k.wake); err != nil {
				k.log.Error("the kernel's changes are not seen any more", "err", err)
			}
		})
	})
	timer := time.NewTimer(0)
	timer.Stop()
	var t tempo
	due := false // soon, and no later for what happens until then
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
			watch()
			if !due {
				timer.Reset(t.wait(time.Now()))
				due = true
			}
		case <-timer.C:
			due = false
			changes, err := k.mend()
			if changes > 0 {
				t.mended(time.Now())
			}
			if err != nil {
				timer.Reset(retrying)
			}
		}
	}
}

// tempo is how soon the kernel is looked at after a change: the later, the more often it
// has just been put right, or has refused to be, for that is a change too.
type tempo struct {
	last time.Time // it has been put right
	next time.Duration
}

func (t *tempo) wait(now time.Time) time.Duration {
	if now.Sub(t.last) > retrying {
		t.next = settling
	}
	return t.next
}

func (t *tempo) mended(now time.Time) {
	t.last, t.next = now, min(2*max(t.next, settling), slowest)
}

// watched reports whether a device is one of ours.
func (k *kernel) watched(device string) bool {
	names := k.devices.Load()
	return names != nil && len(*names) > 0 && ((*names)[device] || tc.IsMirror(device))
}

// wake has the kernel looked at.
func (k *kernel) wake(string) {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// mend makes the kernel equal to the policy again, and returns how many objects it has
// changed.
func (k *kernel) mend() (changes int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink == nil {
		return 0, nil
	}
	changes, err = k.apply(k.policy)
	if changes > 0 {
		_, swept := k.netlink.Sweep()
		err = errors.Join(err, swept)
	}
	switch {
	case err == nil && changes > 0:
		k.log.Warn("the kernel differed from the policy, and has been put right", "changes", changes)
	case err != nil:
		k.log.Error("the kernel differs from the policy", "err", err, "again", retrying)
	}
	return changes, err
}

// close ends the connection to the kernel.
func (k *kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink != nil {
		k.netlink.Close()
		k.netlink = nil
	}
}

// read returns what the kernel has counted, by class: all devices together.
func (k *kernel) read() (all []stats.ClassReading) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink == nil || k.policy == nil {
		return nil
	}
	at := map[string]int{}
	for _, section := range applied(k.policy) {
		d, err := k.netlink.Device(section.Device)
		if err != nil {
			continue // it is not there, and so counts nothing
		}
		leaving, arriving, err := k.netlink.Count(d, k.policy, section)
		if err != nil {
			k.log.Warn("the kernel's counters cannot be read", "device", section.Device, "err", err)
			continue
		}
		for _, class := range k.policy.Classes {
			for way, counted := range map[stats.Direction]map[string]tc.Counters{stats.Upstream: leaving, stats.Downstream: arriving} {
				n, ok := counted[class.Name]
				if !ok {
					continue
				}
				if _, known := at[class.Name]; !known {
					at[class.Name] = len(all)
					all = append(all, emptyReading(class))
				}
				addCounters(&all[at[class.Name]], way, n)
			}
		}
	}
	return all
}

// emptyReading is that of a class of which nothing has been counted.
func emptyReading(class policy.Class) stats.ClassReading {
	r := new(stats.Class).Read()
	r.Name, r.Algorithm, r.Parent = class.Name, string(class.Algorithm), class.Parent
	r.Priority, r.Weight = class.Priority, class.Weight
	r.Rate = readRate(class.Rate)
	if limit := class.Limit(); limit != class.Rate {
		ceil := readRate(limit)
		r.Ceil = &ceil
	}
	return r
}

func addCounters(r *stats.ClassReading, way stats.Direction, n tc.Counters) {
	sent := r.Sent[way]
	sent.Bytes += n.Bytes
	sent.Packets += n.Packets
	r.Sent[way] = sent
	lost := r.Dropped[stats.QueueFull]
	lost.Items += n.Dropped
	r.Dropped[stats.QueueFull] = lost
	r.Overlimits += n.Overlimits
	r.BacklogBytes += int64(n.Backlog)
	r.BacklogItems += int64(n.Queue)
}
