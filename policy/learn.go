package policy

import (
	"fmt"

	"shaper/unit"
)

// Learn says that shaper finds a limit below the rate of the class by what its provider
// refuses. The zero Learn finds none.
type Learn struct {
	// Floor is the least that the class is paced at, whatever the provider refuses.
	Floor unit.Rate `json:"floor"`
}

const learnForm = `a table like { floor = "5 messages/s" }`

// String prints the table as in a policy file, and the zero Learn as "".
func (l Learn) String() string {
	if l == (Learn{}) {
		return ""
	}
	return fmt.Sprintf("{ floor = %q }", l.Floor)
}

var learnFields = []field[Learn]{
	quantity("floor", func(l *Learn) *unit.Rate { return &l.Floor }, unit.ParseRate),
}
