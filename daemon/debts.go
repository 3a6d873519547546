package daemon

import (
	"strings"
	"time"

	"shaper/fleet"
	"shaper/limit"
	"shaper/state"
)

// debts keep in the state file what a member of a fleet has used of its shares of windows. It implements fleet.Ledger.
type debts struct {
	file  *state.File
	limit string // whose member that is, as identityOf says
	found []fleet.Debt
}

// debtsOf begins the names of the leases. That of no class does.
const debtsOf = "share:"

// findDebts returns what the last process has kept, by limit. All of it stays in the file, also if the policy lacks the class
// now: it may come back with a reload.
func findDebts(file *state.File) map[string][]fleet.Debt {
	all := map[string][]fleet.Debt{}
	leases, _ := file.Found()
	for _, lease := range leases {
		if of, is := strings.CutPrefix(lease.Name, debtsOf); is {
			debt := fleet.Debt{Key: lease.Key, Units: lease.Units, Until: lease.Until}
			all[of] = append(all[of], debt)
			(&debts{file: file, limit: of}).Keep(debt, func() {})
		}
	}
	return all
}

// Debts implements fleet.Ledger.
func (d *debts) Debts() []fleet.Debt { return d.found }

// Keep implements fleet.Ledger.
func (d *debts) Keep(debt fleet.Debt, kept func()) {
	now := time.Now()
	lease := limit.Lease{Name: debtsOf + d.limit, Key: debt.Key, At: now, Units: debt.Units, Until: debt.Until, Expires: debt.Until}
	if debt.Units == 0 {
		lease.Expires = now
	}
	d.file.Keep(lease, kept)
}
