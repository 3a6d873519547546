package fleet

import (
	"testing"
	"time"
)

// A mutant is a fleet with a fault in its protocol, and what has to find it.
type mutant struct {
	name   string
	class  string
	mutate func(*Class)
	strain func(*sim)
	found  func(*sim) bool
}

// TestMutantsAreFound holds that the ledger sees what the protocol is for. The same runs without the
// mutation are clean.
func TestMutantsAreFound(t *testing.T) {
	t.Parallel()
	loses := func(s *sim) bool { return s.ledger.used() < 0.98 }
	breaks := func(s *sim) bool { return s.ledger.gaps() != nil }
	for _, m := range []mutant{
		{"no fence", "leaky", func(c *Class) {
			c.terms = &terms{}
			*c.terms = standardTerms
			c.terms.transit = -c.terms.horizon - c.Rate.Time(1)
		}, func(s *sim) { s.every(700*time.Millisecond, func() { s.model = &Model{ID: s.model.ID} }) }, breaks},
		{"no perishing", "leaky", func(c *Class) { c.Late = 20 * time.Millisecond }, func(s *sim) { s.class.Late = time.Millisecond; s.pauses = 0.2 }, breaks},
		{"retry without number", "fixed", nil, func(s *sim) { s.lose = 0.05 }, loses},
	} {
		for _, mutated := range []bool{false, true} {
			name := m.name
			if !mutated {
				name += ", not mutated"
			}
			t.Run(name, func(t *testing.T) {
				class := classNamed(t, m.class)
				if mutated && m.mutate != nil {
					m.mutate(&class)
				}
				s := newSim(t, class, 4, 3)
				for _, member := range s.members {
					member.greedy = true
				}
				s.renumber = mutated && m.mutate == nil
				s.run(3 * time.Second)
				m.strain(s)
				s.ledger.mark()
				s.run(60 * time.Second)
				if found := m.found(s); found != mutated {
					t.Errorf("the ledger objects: %v (%v), and %.1f %% are used; want %v", found, s.ledger.gaps(), 100*s.ledger.used(), mutated)
				}
			})
		}
	}
}

func classNamed(t *testing.T, name string) Class {
	for _, c := range scenarios(t) {
		if c.class.Name == name {
			return c.class
		}
	}
	t.Fatalf("there is no scenario %s", name)
	return Class{}
}

// every does something again and again.
func (s *sim) every(d time.Duration, do func()) {
	s.after(d, func() {
		do()
		s.every(d, do)
	})
}
