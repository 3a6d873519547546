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

// kernel keeps the Linux kernel equal to the policy's sections [tc.DEVICE] with apply = true.
// What it has put there stays when the daemon stops, as what tc(8) puts there does.
type kernel struct {
	// Set by newKernel, read by all.
	log     *slog.Logger
	connect func() (*tc.Kernel, error) // tc.ErrNotPermitted: the kernel part is off
	watch   func(ctx context.Context, interest func(string) bool, changed func(string)) error
	told    func(corrected map[string]int) // takes how many objects run has put right, by device; holds no lock

	devices atomic.Pointer[map[string]bool] // names to watch; stored under mu, read by all
	changed chan struct{}                   // wakes run: something has changed; capacity 1

	reading sync.Mutex                    // held by read; comes before mu
	last    atomic.Pointer[kernelReading] // maybe of a policy before; nil: none yet; stored under mu

	mu      sync.Mutex        // held while the kernel is read or changed; guards the fields below
	netlink *tc.Kernel        // nil until a policy needs it, and after close
	policy  *policy.Policy    // the one to keep; nil: none has come yet
	off     bool              // the policy in force has sections to keep, and the process may not: policy is empty
	warned  map[string]bool   // what warnOnce has logged
	kept    stats.KeptReading // what it took to keep policy in the kernel
	counted map[string]counts // what the kernel has counted for each class, by its name
}

// A way is a direction of what passes a device.
type way struct {
	device    string
	direction stats.Direction
}

// counts is what the kernel has counted for a class. Its counters go with the device or the qdisc, and begin at 0 when
// that comes back. So a sum of them over the devices would fall, and Prometheus would take all that the other devices
// have ever counted for new.
type counts map[way]*counted

type counted struct {
	last    tc.Counters // as the kernel said last
	before  tc.Counters // what it had counted until it began at 0 again
	current bool        // the kernel has it
}

func newKernel(log *slog.Logger) *kernel {
	return &kernel{log: log, changed: make(chan struct{}, 1), connect: connect, watch: tc.Watch, told: func(map[string]int) {}, warned: map[string]bool{}, counted: map[string]counts{}}
}

// connect connects to the kernel of this machine. The error is tc.ErrNotPermitted if the
// process may not change it.
func connect() (*tc.Kernel, error) {
	if err := tc.Permitted(); err != nil {
		return nil, err
	}
	return tc.Open()
}

// When run looks at the kernel.
const (
	settleTime     = 50 * time.Millisecond // after a change: changes come in bursts
	longestBackoff = time.Second           // after a change, if somebody changes it again and again
	retryTime      = 10 * time.Second      // after an error
	lookTime       = 30 * time.Second      // after the last change: of some the kernel tells nobody, as of gso_max_size
)

// sectionsToKeep returns the sections of a policy with apply = true; none if p is nil.
func sectionsToKeep(p *policy.Policy) (sections []policy.TC) {
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.TC), func(t policy.TC) bool { return !t.Apply })
}

// prepare puts a policy into the kernel. On an error it restores the policy before. It is the
// last step before a commit, since it changes what runs. The returned commit removes what the
// policy no longer has, and cannot fail.
func (k *kernel) prepare(p *policy.Policy) (commit func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.policy
	if err := k.open(p); err != nil {
		return nil, err
	}
	if k.off = k.netlink == nil && len(sectionsToKeep(p)) > 0; k.netlink == nil { // nothing to do, or not permitted
		k.keep(&policy.Policy{})
		return func() {}, nil
	}
	if _, err := k.apply(p); err != nil {
		k.restore(before, p)
		return nil, err
	}
	k.keep(p)
	k.note(0, nil)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.clear(before, p)
	}, nil
}

// restore puts the policy before into the kernel again, and clears the devices that only p
// shapes. If before is nil, as at the start, everything stays as it is. The caller holds mu.
func (k *kernel) restore(before, p *policy.Policy) {
	if before == nil {
		return
	}
	if _, err := k.apply(before); err != nil {
		k.log.Error("cannot restore the previous policy in the kernel", "err", err)
	}
	k.clear(p, before)
}

// open connects to the kernel if a policy needs it. If that is not permitted, open logs it once
// and leaves netlink nil. The caller holds mu.
func (k *kernel) open(p *policy.Policy) (err error) {
	marks := slices.ContainsFunc(p.TC, func(t policy.TC) bool { return t.Mark })
	if k.netlink != nil || len(sectionsToKeep(p)) == 0 && !marks {
		return nil
	}
	if k.netlink, err = k.connect(); errors.Is(err, tc.ErrNotPermitted) {
		k.warnOnce("THE KERNEL PART IS OFF: the sections [tc.DEVICE] are not applied and nothing is marked; the proxy runs", "err", err)
		return nil
	}
	return err
}

// warnOnce logs a warning the first time it comes. The caller holds mu.
func (k *kernel) warnOnce(message string, about ...any) {
	if line := fmt.Sprint(message, about); !k.warned[line] {
		k.warned[line] = true
		k.log.Warn(message, about...)
	}
}

// keep makes a policy the one that run keeps in the kernel. The caller holds mu.
func (k *kernel) keep(p *policy.Policy) {
	names := map[string]bool{}
	for _, t := range sectionsToKeep(p) {
		names[t.Device] = true
	}
	k.policy = p
	k.devices.Store(&names)
	if len(names) > 0 {
		k.wake("") // run begins to watch
	}
}

// apply makes the kernel equal to the sections of a policy, and returns how many objects it
// has changed, by device. It skips a device that does not exist: run applies the policy when the device
// comes. The caller holds mu.
func (k *kernel) apply(p *policy.Policy) (changes map[string]int, err error) {
	var errs []error
	changes = map[string]int{}
	for _, section := range sectionsToKeep(p) {
		n, err := k.applySection(p, section)
		if n > 0 {
			changes[section.Device] = n
		}
		switch {
		case errors.Is(err, tc.ErrNoDevice):
			k.warnOnce("waiting for a network device", "device", section.Device)
			_, err := k.netlink.Sweep()
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, fmt.Errorf("tc.%s: %w", section.Device, err))
		}
	}
	return changes, errors.Join(errs...)
}

// applySection is apply for one section. The caller holds mu.
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

// clear removes what the policy before has put on devices that the policy now does not shape.
// The caller holds mu.
func (k *kernel) clear(before, now *policy.Policy) {
	for _, was := range sectionsToKeep(before) {
		if slices.ContainsFunc(sectionsToKeep(now), func(t policy.TC) bool { return t.Device == was.Device }) {
			continue
		}
		d, err := k.netlink.Device(was.Device)
		if err == nil {
			plan, _ := tc.Plan(before, was, d) // Clear works without a plan, except for sizes that are noted nowhere
			_, err = k.netlink.Clear(d, plan)
		}
		if err != nil && !errors.Is(err, tc.ErrNoDevice) {
			k.log.Error("cannot clear a device", "device", was.Device, "err", err)
		}
	}
}

// set puts a policy into the kernel that differs only in values of classes. If that fails, run
// tries again.
func (k *kernel) set(p *policy.Policy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink == nil {
		return
	}
	k.keep(p)
	_, err := k.apply(p)
	if k.note(0, err); err != nil {
		k.log.Error("the kernel refused a change; trying again", "err", err)
		k.wake("")
	}
}

// note remembers what it took to make the kernel equal to the policy: that many objects were put
// right, or an error. The caller holds mu.
func (k *kernel) note(corrected int, err error) {
	k.kept.Corrected += uint64(corrected)
	k.kept.Error = ""
	if err != nil {
		k.kept.Error = err.Error()
	}
}

// wake makes run compare the kernel with the policy. It takes a device only to be the callback
// of watch.
func (k *kernel) wake(string) {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// close closes the connection to the kernel, and leaves what is in it.
func (k *kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink != nil {
		k.netlink.Close()
		k.netlink = nil
		k.last.Store(nil)
	}
}
