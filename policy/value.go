package policy

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"shaper/unit"
)

// parseWait reads a duration, which must be above 0.
func parseWait(s string) (unit.Duration, error) {
	d, err := unit.ParseDuration(s)
	if err == nil && d <= 0 {
		err = complain("a duration above 0s, or leave the key out", "%q leaves no time", s)
	}
	return d, err
}

// parseBurst reads the depth of a bucket: a size or a count.
func parseBurst(s string) (Burst, error) {
	if size, err := unit.ParseSize(s); err == nil {
		return positive(Burst{int64(size), unit.Bytes}, int64(size), burstForm, s)
	}
	count, err := unit.ParseCount(s)
	if err != nil {
		return Burst{}, complain(burstForm, "%s", neither(s))
	}
	return positive(Burst(count), count.N, burstForm, s)
}

// parseQueue reads the bound of a queue: a size or a count. It replaces both defaults, like
// the limits of tc's bfifo and pfifo.
func parseQueue(s string) (Queue, error) {
	if size, err := unit.ParseSize(s); err == nil {
		return positive(Queue{Bytes: size}, int64(size), queueForm, s)
	}
	count, err := unit.ParseCount(s)
	if err != nil {
		return Queue{}, complain(queueForm, "%s", neither(s))
	}
	return positive(Queue{Items: count}, count.N, queueForm, s)
}

// neither says why a text is neither a size nor a count. If it has the unit of one of them, that one says it.
func neither(s string) string {
	named := "1 " + strings.TrimLeft(s, "0123456789., ")
	_, noSize := unit.ParseSize(s)
	_, noCount := unit.ParseCount(s)
	if _, err := unit.ParseSize(named); err == nil {
		return complaintOf(noSize).problem
	}
	if _, err := unit.ParseCount(named); err == nil {
		return complaintOf(noCount).problem
	}
	return fmt.Sprintf("%q is neither a size nor a count", s)
}

// positive returns v if n is above 0. Else no item would ever pass.
func positive[V any](v V, n int64, form, s string) (V, error) {
	if n > 0 {
		return v, nil
	}
	var zero V
	return zero, complain(form, "%q holds nothing", s)
}

var (
	parseSessions     = integer(1, math.MaxInt32, sessionsForm)
	parseInFlight     = integer(1, 1_000_000, inFlightForm)
	parseHeaderLength = integer(0, 64, headerForm)
	parseKeys         = integer(1, 1<<24, keysForm)
	parsePriority     = integer(0, LastPriority, priorityForm)
	parseWeight       = integer(1, 10_000, weightForm)
)

// integer returns a parser for an integer from least to most.
func integer(least, most int64, form string) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < least || n > most {
			return 0, within(domain{least: least, most: most}, complain(form, "%s is out of range", s))
		}
		return int(n), nil
	}
}

// parseControl reads the path of a unix socket. It refuses an abstract socket ("@name"), since
// that has no permissions and would be open to everybody.
func parseControl(s string) (string, error) {
	if s == "" || s[0] == '@' || len(s) > 107 || strings.ContainsRune(s, 0) {
		return "", complain(controlForm, "%q cannot be a socket's path", s)
	}
	return s, nil
}

// parseState reads the path of a file, or "" for none.
func parseState(s string) (string, error) {
	if strings.ContainsRune(s, 0) || strings.HasSuffix(s, "/") {
		return "", complain(stateForm, "%q cannot be a file", s)
	}
	return s, nil
}

// parsePath returns a parser for the path of a file.
func parsePath(form string) func(string) (string, error) {
	return func(s string) (string, error) {
		if s == "" || strings.ContainsRune(s, 0) {
			return "", complain(form, "%q cannot be a path", s)
		}
		return s, nil
	}
}

// parseInclude reads the name of a file, or a pattern.
func parseInclude(s string) (string, error) {
	if _, err := filepath.Match(s, ""); s == "" || err != nil || strings.ContainsRune(s, 0) {
		return "", complain(includeForm, "%q cannot be the name of a file", s)
	}
	return s, nil
}

// headerKey is what the keys of a rule about fields of HTTP begin with.
const headerKey = "header:"

// headersKey stands for all of them.
const headersKey = headerKey + "NAME"

const (
	headerNameForm = `the name of a field, like "header:X-Api-Key"`
	fieldNameForm  = `the name of a field, like "X-Cost"`
)

// parseHeaderName checks the name of a field of HTTP that stands behind headerKey.
func parseHeaderName(s string) (string, error) { return parseName(s, headerNameForm) }

// parseFieldName checks the name of a field of HTTP that stands alone.
func parseFieldName(s string) (string, error) { return parseName(s, fieldNameForm) }

// parseName checks the name of a field of HTTP (RFC 9110, 5.6.2). form says what is allowed.
func parseName(s, form string) (string, error) {
	const others = "!#$%&'*+-.^_`|~"
	bad := func(r rune) bool {
		return r > '~' || !isName(string(r)) && !strings.ContainsRune(others, r)
	}
	if name, _, found := strings.Cut(s, ":"); found {
		return "", complain(form, "a colon follows %q", name) // and then a value, which may be secret
	}
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, bad) {
		return "", complain(form, "%q cannot be the name of a field", s)
	}
	return s, nil
}

// An Octet is the value of a field of SMPP that has one byte. JSON has it as a number.
type Octet uint16

const octetForm = `an integer from 0 to 255, or a list of them`

// parseOctet reads the value of one byte.
func parseOctet(s string) (Octet, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, complain(octetForm, "%s is not the value of a byte", s)
	}
	return Octet(n), nil
}
