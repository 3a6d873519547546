package policy

import (
	"fmt"
	"strings"
	"time"

	"shaper/unit"
)

// LengthPrefix is how the length before a message of ISO 8583 is written.
type LengthPrefix string

// The length prefixes.
const (
	Binary2 LengthPrefix = "binary2" // two bytes, big-endian
	ASCII4  LengthPrefix = "ascii4"  // four ASCII digits
	BCD2    LengthPrefix = "bcd2"    // four digits in two bytes
	VML     LengthPrefix = "vml"     // Visa's: two bytes, big-endian, and two that are reserved
)

// OnThrottle is for how long a class pauses when its provider says "too fast", and
// not how long that holds.
type OnThrottle struct {
	Pause unit.Duration `json:"pause"` // at first; it doubles each time until something succeeds
	Max   unit.Duration `json:"max"`   // at most, also where the provider says more
}

// DefaultOnThrottle is a second, which is what most providers count in, and at most a
// minute, for which some block.
var DefaultOnThrottle = OnThrottle{Pause: unit.Duration(time.Second), Max: unit.Duration(time.Minute)}

// String prints it as a policy file has it, and the zero OnThrottle as "".
func (o OnThrottle) String() string {
	if o == (OnThrottle{}) {
		return ""
	}
	return fmt.Sprintf("{ pause = %q, max = %q }", o.Pause, o.Max)
}

var onThrottleFields = []field[OnThrottle]{
	quantity("pause", func(o *OnThrottle) *unit.Duration { return &o.Pause }, parseWait),
	quantity("max", func(o *OnThrottle) *unit.Duration { return &o.Max }, parseWait),
}

// Pattern is what a rule compares a text of a message with: a text, before or
// behind which a "*" stands for any other. Hosts are compared without regard to case,
// everything else as it was sent.
type Pattern string

const patternForm = `a text, with a "*" as its first or last letter for whatever else is there, like "/v1/*"`

func parsePattern(s string) (Pattern, error) {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return "", complain(patternForm, "%q is in no message", s)
	}
	if middle := strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*"); strings.Contains(middle, "*") {
		return "", complain(patternForm, "%q has a \"*\" in its midst", s)
	}
	return Pattern(s), nil
}

// parseHost is parsePattern of what is not compared by case.
func parseHostPattern(s string) (Pattern, error) { return parsePattern(strings.ToLower(s)) }
