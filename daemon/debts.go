package daemon

import (
	"time"

	"shaper/fleet"
	"shaper/limit"
	"shaper/state"
)

// debts keep in the state file what a member of a fleet has used of its shares of windows. It implements fleet.Ledger.
type debts struct {
	file  *state.File
	name  string // of the leases
	found []fleet.Debt
}

// newDebts returns the debts of a limit. What the last process has kept stays in the file. No class has the name of these
// leases.
func newDebts(file *state.File, limit string) *debts {
	d := &debts{file: file, name: "share:" + limit}
	found, _ := file.Found()
	for _, lease := range found {
		if lease.Name == d.name {
			debt := fleet.Debt{Key: lease.Key, Units: lease.Units, Until: lease.Until}
			d.found = append(d.found, debt)
			d.Keep(debt, func() {})
		}
	}
	return d
}

// Debts implements fleet.Ledger.
func (d *debts) Debts() []fleet.Debt { return d.found }

// Keep implements fleet.Ledger.
func (d *debts) Keep(debt fleet.Debt, kept func()) {
	now := time.Now()
	lease := limit.Lease{Name: d.name, Key: debt.Key, At: now, Units: debt.Units, Until: debt.Until, Expires: debt.Until}
	if debt.Units == 0 {
		lease.Expires = now
	}
	d.file.Keep(lease, kept)
}
