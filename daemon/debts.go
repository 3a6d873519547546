package daemon

import (
	"strings"
	"time"

	"shaper/fleet"
	"shaper/limit"
	"shaper/state"
)

// debts keep in the state file what one member of a fleet has used of its shares of windows. They implement fleet.Ledger: the
// next process begins with these debts. Each debt is a lease in the file.
type debts struct {
	file  *state.File
	limit string       // the name of the limit that the member belongs to
	found []fleet.Debt // what the process before has kept
}

// debtsOf begins the names of these leases. No name of a class begins so.
const debtsOf = "share:"

// findDebts returns the debts that the process before has kept, by limit. It keeps all of them for another time, even those of
// classes that the policy does not have now: a reload may bring these back.
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
