package limit

import "time"

// A Lease is a part of a budget that lives outside the process, in a ledger. The process
// may use the part until the lease ends; the ledger counts all of it as used from the start.
// So what the process does not use is lost if the process ends, and nothing is used twice.
type Lease struct {
	Name string // of the class; "": Record is the secret with which keys are hashed
	Key  string // of a bucket of the class (`per`); "": the class has no buckets, or the lease is for all keys that the ledger does not know

	At      time.Time // the lease begins
	Units   int64     // what may leave from At on; 0: nothing
	Until   time.Time // the lease ends
	Expires time.Time // from then on the lease makes no difference, and the ledger may forget it

	// Record is what the limiter remembered at At. Another process goes on from it. All times in
	// it count from At.
	Record []byte
}

// NoRoom is what a ledger grants, instead of units, if it has no room for another key.
const NoRoom = -1
