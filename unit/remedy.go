package unit

import (
	"errors"
	"fmt"
	"strings"
)

// A remedied error knows what should have been written.
type remedied struct {
	error
	remedy string
}

// remedyOf returns what an error says should have been written, or else a form.
func remedyOf(err error, form string) string {
	var r remedied
	if errors.As(err, &r) {
		return r.remedy
	}
	return form
}

// messageWords are what people call messages.
var messageWords = []string{"request", "req", "call", "transaction", "query", "sms", "submit", "mail", "msgs"}

// perSecondWords are what people call a number of something per second.
var perSecondWords = map[string]Kind{"rps": Messages, "tps": Messages, "qps": Messages, "mps": Messages, "pps": Packets, "cps": Connections}

// unknownUnit says what is wrong with the word behind the number of a rate, and what
// was probably meant. The period is what stands behind the slash; "" for none.
func unknownUnit(number, word, period string) error {
	if word == "" {
		return remedied{errors.New("it does not say what it counts"),
			fmt.Sprintf(`write "%[1]s messages/%[2]s", "%[1]s packets/%[2]s" or "%[1]s connections/%[2]s"`, number, period)}
	}
	unknown := fmt.Errorf("%q is no unit of a rate", word)
	for _, meant := range []string{countMeant(number, word, period), bitsMeant(number, word, period), sizeMeant(number, word, period)} {
		if meant != "" {
			return remedied{unknown, meant}
		}
	}
	return unknown
}

// countMeant says how a count is written that a word probably stands for; "" for none.
func countMeant(number, word, period string) string {
	word = strings.ToLower(word)
	kind, perSecond := perSecondWords[word]
	switch {
	case perSecond && period == "":
		return fmt.Sprintf(`write "%s %v/s"`, number, kind)
	case period == "":
		return ""
	case isMessages(word):
		kind = Messages
	default:
		var ok bool
		if kind, ok = kindOf(word); !ok || kind == Items {
			return ""
		}
	}
	return fmt.Sprintf(`write "%s %v/%s"`, number, kind, period)
}

// bitsMeant is countMeant for bits per second: "Mbit/s", and "Mbps", which are bits to
// most people and bytes to tc.
func bitsMeant(number, word, period string) string {
	if period != "" && period != "s" {
		return ""
	}
	word = strings.ToLower(word)
	if bits := strings.TrimSuffix(word, "s"); isIn(bitUnits, bits) {
		return fmt.Sprintf(`bits are per second, so write "%s%s"`, number, bits)
	}
	prefix, ok := strings.CutSuffix(strings.TrimSuffix(word, "ps"), "b")
	if bytes := strings.ToUpper(prefix) + "B"; ok && isIn(bitUnits, prefix+"bit") && isIn(sizeUnits, bytes) {
		return fmt.Sprintf(`write "%s%sbit" for bits, or "%s%s/s" for bytes`, number, prefix, number, bytes)
	}
	return ""
}

// sizeMeant is countMeant for bytes in other letters: "64kib/s".
func sizeMeant(number, word, period string) string {
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name, word) && period != "" {
			return fmt.Sprintf(`write "%s%s/%s"`, number, u.name, period)
		}
	}
	return ""
}

func isIn(units []scale, name string) bool {
	_, ok := find(units, name)
	return ok
}

// isMessages reports whether a word in lower case, or its singular, means messages.
func isMessages(word string) bool {
	for _, one := range messageWords {
		if word == one || word == one+"s" || word == "queries" {
			return true
		}
	}
	return false
}
