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
	inForce []policy.Class         // the classes of file as its schedules have them now
	held    map[*shaper.Class]bool // the classes that Class, Transport or Limits has returned
	timer   *time.Timer            // for the next change by a schedule; nil: there has been none
	closed  bool
	clock   func() time.Time // time.Now; tests set it
}

// clockCheckInterval is how often a schedule is compared with the clock, even if no change is near. Timers
// do not notice that somebody sets the clock, or that the machine was suspended. After that, the schedule
// may be wrong for this long.
const clockCheckInterval = time.Minute

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
// waits in it. In a class without the key overflow, callers wait. If a class is gone from the file, it
// goes on as it was for those who hold it. If a later Reload brings its name back, that is the same class
// as long as what has left it still counts against its rate. After that, it is a new class.
//
// If the file has a mistake, Reload returns an error, and everything stays as it was. The same holds if
// the file gives another unit, another per, or quiet hours for other recipients to a class that Class,
// Transport or Limits has returned. Such a change needs a new class, and those who hold the old class
// would go on with its old limits.
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
	if err := p.checkHeld(file); err != nil {
		return err
	}
	p.file = file
	p.followSchedules()
	return nil
}

// checkHeld returns an error if file would replace a class that somebody may hold. mu is held.
func (p *Policy) checkHeld(file *policy.Policy) error {
	for c := range p.held {
		if current := p.shaper.Class(c.Name()); current != nil && current != c {
			continue // c was gone from the file, and another class has its name now
		}
		if conf, ok := file.Class(c.Name()); ok && c.IsReplacedBy(conf) {
			return fmt.Errorf("client: %s: class %q is in use, and cannot get another unit, another per or quiet hours for others before a new LoadPolicy", p.path, conf.Name)
		}
	}
	return nil
}

// followSchedules puts in force what the schedules say now, and does so again when that changes. mu is held.
func (p *Policy) followSchedules() {
	p.stopTimer()
	if p.closed { // the timer had fired before Close stopped it, or this is a Reload after Close
		return
	}
	now := p.clock()
	scheduled, changes := p.file.Scheduled(now)
	p.enforce(scheduled.Classes)
	if !changes.IsZero() {
		p.timer = time.AfterFunc(min(changes.Sub(now), clockCheckInterval), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.followSchedules()
		})
	}
}

// stopTimer ends the wait for the next change by a schedule. mu is held.
func (p *Policy) stopTimer() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// enforce puts classes in force, unless they are in force already. mu is held.
func (p *Policy) enforce(classes []policy.Class) {
	if slices.EqualFunc(classes, p.inForce, policy.Class.Equal) {
		return
	}
	p.inForce = classes
	for _, removed := range p.shaper.Apply(classes) {
		removed.LetIn() // at once: connections stay in a removed class, so there are none to move first
	}
}

// Close ends the classes. Nothing that waits in them leaves any more: it waits until its context or
// deadline ends, or its connection is closed.
func (p *Policy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.stopTimer()
		p.shaper.Close()
	}
}

// Class returns a class of the file.
func (p *Policy) Class(name string) (*shaper.Class, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	class, err := p.find(name)
	if err == nil {
		p.held[class] = true
	}
	return class, err
}

// Transport returns a Transport whose requests wait for a class of messages.
func (p *Policy) Transport(class string) (*Transport, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := p.find(class)
	if err != nil {
		return nil, err
	}
	t, err := newTransport(c)
	if err == nil {
		p.held[c] = true
	}
	return t, err
}

// Limits returns the limits of connections, for a Dialer or a Listener. What they write is in class,
// and what they read is in returnClass, as with the keys class and return_class of a listener. "" limits
// nothing. If class counts connections, it limits how fast they open, and not what they write.
func (p *Policy) Limits(class, returnClass string) (l Limits, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Write, err = p.findOptional(class); err != nil {
		return Limits{}, err
	}
	if l.Read, err = p.findOptional(returnClass); err != nil {
		return Limits{}, err
	}
	if l.Write != nil && l.Write.Counts(unit.Connections) {
		l.Write, l.Open = nil, l.Write
	}
	// Which network is not known here. udp allows the most: bytes, packets and connections. The Dialer or
	// the Listener checks the limits again, for its own network.
	if err := l.check("udp"); err != nil {
		return Limits{}, err
	}
	for _, c := range []*shaper.Class{l.Write, l.Read, l.Open} {
		if c != nil {
			p.held[c] = true
		}
	}
	return l, nil
}

// findOptional is find, but returns nil for "". mu is held.
func (p *Policy) findOptional(name string) (*shaper.Class, error) {
	if name == "" {
		return nil, nil
	}
	return p.find(name)
}

// find returns the class of a name. Its error lists the names that there are. mu is held.
func (p *Policy) find(name string) (*shaper.Class, error) {
	if class := p.shaper.Class(name); class != nil {
		return class, nil
	}
	var names []string
	for _, class := range p.shaper.Classes() {
		names = append(names, class.Name())
	}
	return nil, fmt.Errorf("client: %s: %s", p.path, policy.NoClass(name, names))
}
