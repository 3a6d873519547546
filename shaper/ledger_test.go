package shaper

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// randomReload returns a random policy of accounts, of classes between and of leaves, which differ in parents, in groups and in units.
func randomReload(r *rand.Rand, limit policy.Class) (confs []policy.Class) {
	var parents []string
	for _, name := range []string{"a", "b", "c", "x", "y", "z", "leaf", "other"} {
		isLeaf := name == "leaf" || name == "other"
		if name >= "x" && r.IntN(3) == 0 {
			continue
		}
		conf := named(name, limit)
		if len(parents) > 0 && (isLeaf || r.IntN(3) == 0) {
			conf.Parent = parents[r.IntN(len(parents))]
		}
		if !isLeaf && r.IntN(4) == 0 {
			conf.Quieted = make([]policy.QuietGroup, 1)
		}
		if name >= "x" && r.IntN(25) == 0 {
			conf.Rate = rateOf("1000000 packets/h")
		}
		if confs = append(confs, conf); name != "leaf" {
			parents = append(parents, name)
		}
	}
	return confs
}

// senders are the names in a policy of randomReload of those that send.
var senders = []string{"leaf", "other", "x", "y", "z"}

// pathOf returns a class and those above it.
func pathOf(c *Class) (all []*Class) {
	for ; c != nil; c = c.Parent() {
		all = append(all, c)
	}
	return all
}

// A ledger knows the least that each class has to have charged, in its own unit.
type ledger struct {
	s     *Shaper
	least map[*Class]int64
	sent  []sent
}

// sent is what has left a class, and not been corrected yet.
type sent struct {
	class *Class
	at    time.Time
	paid  []*Class // those that were charged; after a reload, their heirs
}

// reload applies a policy. What a new class has charged at first is its own; an heir goes on.
func (l *ledger) reload(confs []policy.Class) {
	before := l.s.Classes()
	l.s.Apply(confs)
	for _, c := range l.s.Classes() {
		if !slices.Contains(before, c) {
			l.least[c] = chargedOf(c, 1_000_000)
		}
	}
	for _, c := range before {
		if c.heir != nil {
			l.least[c.heir] = l.least[c]
		}
	}
	for _, one := range l.sent {
		for i, c := range one.paid {
			if c.heir != nil {
				one.paid[i] = c.heir
			}
		}
	}
}

func (l *ledger) send(c *Class) {
	if c == nil || !c.Pass(time.Now(), Cost{Messages: 1000, Packets: 1000, Bytes: 1}) {
		return
	}
	l.sent = append(l.sent, sent{c, time.Now(), pathOf(c)})
	for _, p := range pathOf(c) {
		l.least[p] += 1000
	}
}

// settle gives most of the first one back, to those that were charged at most.
func (l *ledger) settle() {
	if len(l.sent) == 0 {
		return
	}
	one := l.sent[0]
	l.sent = l.sent[1:]
	one.class.Provider().Settle(time.Now(), one.at, Cost{Messages: -900, Packets: -900})
	for _, p := range one.paid {
		l.least[p] -= 900
	}
}

// Whatever reloads change, no window gives back what it was not charged.
func TestLedgerOfReloads(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			l := ledger{s: NewOnRuntimeTimer(), least: map[*Class]int64{}}
			defer l.s.Close()
			for step := range 12 {
				time.Sleep(second)
				if r.IntN(2) == 0 {
					l.reload(randomReload(r, classBy(policy.FixedWindow, "1000000 messages/h")))
				}
				for _, name := range senders {
					if r.IntN(2) == 0 {
						l.send(l.s.Class(name))
					}
				}
				if time.Sleep(second); r.IntN(2) == 0 {
					l.settle()
				}
				for _, c := range l.s.Classes() {
					got := chargedOf(c, 1_000_000)
					if got < l.least[c] {
						t.Fatalf("seed %d, step %d: %s has charged %d, want at least %d", seed, step, c.name, got, l.least[c])
					}
					l.least[c] = got
				}
			}
		})
	}
}
