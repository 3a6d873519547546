package client

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// A Policy is the classes of a policy file in this program: the same names, rates, trees and
// schedules as in a daemon that has this file. Each process has budgets of its own. Listeners
// and rules of the file mean nothing here, and may be missing. Any number of goroutines may use a Policy
// at the same time. The caller closes it.
type Policy struct {
	path   string
	shaper *shaper.Shaper

	mu      sync.Mutex // guards the fields below
	file    *policy.Policy
	inForce []policy.Class         // what the schedules of file have made of its classes
	held    map[*shaper.Class]bool // the classes that somebody may hold
	timer   *time.Timer            // follows the schedules; nil: there are none
	closed  bool
	clock   func() time.Time // time.Now; tests set it
}

// clockPatience is how often a schedule is compared with the clock. For so long it may be wrong after
// somebody has set the clock, or after a suspend, which timers do not notice.
const clockPatience = time.Minute

// LoadPolicy reads a policy file. Its error names every mistake in the file, with positions.
func LoadPolicy(path string) (*Policy, error) {
	p := &Policy{path: path, shaper: shaper.NewOnRuntimeTimer(), clock: time.Now, held: map[*shaper.Class]bool{}}
	if err := p.Reload(); err != nil {
		p.shaper.Close()
		return nil, err
	}
	return p, nil
}

// Reload reads the file again. A class of the same name goes on with its new rate, also for what
// waits in it. A class without overflow lets callers wait. If a class is gone from the file, it goes on
// as it was for those who hold it. If it is back while what has left still matters, it is the same class
// again; if it is back later, it is a new one.
//
// If the file has a mistake, Reload returns an error, and everything stays as it was. The same holds if
// the file gives another unit, another per, or quiet hours for other recipients to a class that Class,
// Transport or Limits has returned. Such a change takes a new class, and whoever holds the old one
// would not hear of it.
func (p *Policy) Reload() error {
	file, err := policy.LoadClasses(p.path)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	for i := range file.Classes {
		if c := &file.Classes[i]; c.Overflow == "" {
			c.Overflow = policy.Wait
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.keepsHeld(file); err != nil {
		return err
	}
	p.file = file
	p.follow()
	return nil
}

// keepsHeld returns an error if a new class would replace one that somebody may hold. mu is held.
func (p *Policy) keepsHeld(file *policy.Policy) error {
	for c := range p.held {
		if is := p.shaper.Class(c.Name()); is != nil && is != c {
			continue // c was gone from the file, and another class has its name now
		}
		if conf, ok := file.Class(c.Name()); ok && c.IsReplacedBy(conf) {
			return fmt.Errorf("client: %s: class %q is in use, and cannot get another unit, another per or quiet hours for others before a new LoadPolicy", p.path, conf.Name)
		}
	}
	return nil
}

// follow puts in force what the schedules say now, and does so again when that changes. mu is held.
func (p *Policy) follow() {
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.closed {
		return
	}
	now := p.clock()
	scheduled, changes := p.file.Scheduled(now)
	p.enforce(scheduled.Classes)
	if !changes.IsZero() {
		p.timer = time.AfterFunc(min(changes.Sub(now), clockPatience), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.follow()
		})
	}
}

// enforce puts classes in force, unless they are in force already. mu is held.
func (p *Policy) enforce(classes []policy.Class) {
	if slices.EqualFunc(classes, p.inForce, policy.Class.Equal) {
		return
	}
	p.inForce = classes
	for _, removed := range p.shaper.Apply(classes) {
		removed.LetIn() // nobody moves their connections elsewhere
	}
}

// Close ends the classes. What waits in them leaves no more: it waits until its context or deadline ends,
// or its connection is closed.
func (p *Policy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.follow()
		p.shaper.Close()
	}
}

// Class returns a class of the file.
func (p *Policy) Class(name string) (*shaper.Class, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	class := p.shaper.Class(name)
	if class == nil {
		return nil, p.unknown(name)
	}
	p.held[class] = true
	return class, nil
}

// find returns a class; nil for "". mu is held.
func (p *Policy) find(name string) (class *shaper.Class, err error) {
	if name != "" {
		if class = p.shaper.Class(name); class == nil {
			err = p.unknown(name)
		}
	}
	return class, err
}

// unknown returns the error for a class that is not in the file. mu is held.
func (p *Policy) unknown(name string) error {
	var names []string
	for _, class := range p.shaper.Classes() {
		names = append(names, class.Name())
	}
	return fmt.Errorf("client: %s: %s", p.path, policy.NoClass(name, names))
}

// Transport returns a Transport whose requests wait for a class of messages.
func (p *Policy) Transport(class string) (*Transport, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.shaper.Class(class)
	if c == nil {
		return nil, p.unknown(class)
	}
	t, err := newTransport(c)
	if err == nil {
		p.held[c] = true
	}
	return t, err
}

// Limits returns the limits of connections, for a Dialer or a Listener: what they write is in
// one class, and what they read in another, as with class and return_class of a listener of the
// file. "" limits nothing. A class of connections limits how many open.
func (p *Policy) Limits(class, returnClass string) (l Limits, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Write, err = p.find(class); err != nil {
		return Limits{}, err
	}
	if l.Read, err = p.find(returnClass); err != nil {
		return Limits{}, err
	}
	if l.Write != nil && l.Write.Counts(unit.Connections) {
		l.Write, l.Open = nil, l.Write
	}
	if err := l.check("udp"); err != nil { // limits of tcp pass, too; a Dialer or a Listener checks its own network
		return Limits{}, err
	}
	for _, c := range []*shaper.Class{l.Write, l.Read, l.Open} {
		if c != nil {
			p.held[c] = true
		}
	}
	return l, nil
}
