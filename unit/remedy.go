package unit

import (
	"fmt"
	"strings"
	"time"
)

// A proposal is a rate that the operator probably meant. The meaning tells it from other
// proposals.
type proposal struct{ rate, meaning string }

// rateRemedy says what to write instead of s, which is not a rate. Every rate that it
// proposes is valid.
func rateRemedy(s string) string {
	var valid []string
	for _, p := range ratesMeant(s) {
		if _, err := parseRate(p.rate); err == nil {
			valid = append(valid, fmt.Sprintf("%q%s", p.rate, p.meaning))
		}
	}
	switch last := len(valid) - 1; {
	case last < 0:
		return rateForm
	case last == 0:
		return "write " + valid[0]
	case strings.Contains(valid[0], " for "):
		return "write " + strings.Join(valid, ", or ")
	default:
		return "write " + strings.Join(valid[:last], ", ") + " or " + valid[last]
	}
}

// ratesMeant returns the rates that s, which is not a rate, may stand for. They may be
// invalid.
func ratesMeant(s string) (all []proposal) {
	number, rest := cutDigits(s)
	number = strings.ReplaceAll(number, ",", "")
	rest = strings.Replace(rest, " per ", "/", 1)
	word, period, slash := strings.Cut(rest, "/")
	word, period = strings.TrimSpace(word), periodMeant(period)
	ofBytes := isIn(sizeUnits, word)
	word = strings.ToLower(word)
	if period == "" {
		period = "s"
	}
	propose := func(unit, period string) { all = append(all, proposal{number + unit + "/" + period, ""}) }
	kind, perSecond := perSecondWords[word]
	counted, counts := countMeant(word)
	size, isSize := sizeMeant(word)
	bits := bitsMeant(number, word)
	switch {
	case number == "" || word == "" && !slash:
	case word == "":
		for _, kind := range []Kind{Messages, Packets, Connections} {
			propose(" "+kind.String(), period)
		}
	case perSecond:
		if propose(" "+kind.String(), "s"); period != "s" {
			propose(" "+kind.String(), period)
		}
	case counts:
		if propose(" "+counted.String(), period); !slash {
			propose(" "+counted.String(), "min")
		}
	case len(bits) > 0 && !ofBytes && period == "s":
		return bits
	case isSize:
		propose(size, period)
	}
	return all
}

// cutDigits splits a text after its number. Commas may group its digits.
func cutDigits(s string) (number, rest string) {
	rest = strings.TrimLeft(s, "0123456789.,")
	return s[:len(s)-len(rest)], rest
}

// messageWords are what people call messages, "r" in nginx. "querie" is "queries" without its s.
var messageWords = []string{"request", "req", "r", "call", "transaction", "query", "querie", "sms", "submit", "mail"}

// perSecondWords are abbreviations that count something per second.
var perSecondWords = map[string]Kind{"rps": Messages, "tps": Messages, "qps": Messages, "mps": Messages, "pps": Packets, "cps": Connections}

// countMeant returns what a word in lower case probably counts.
func countMeant(word string) (kind Kind, ok bool) {
	one := strings.TrimSuffix(word, "s")
	for _, w := range messageWords {
		if w == word || w == one {
			return Messages, true
		}
	}
	if kind, ok = kindOf(word); !ok {
		kind, ok = kindOf(one)
	}
	return kind, ok && kind != Items
}

// sizeMeant returns the unit of bytes that a word in lower case probably stands for, such
// as "kib" or "kbytes".
func sizeMeant(word string) (name string, ok bool) {
	short := strings.TrimSuffix(strings.TrimSuffix(word, "s"), "yte")
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name, short) {
			return u.name, true
		}
	}
	return "", false
}

// bitsMeant returns the rates that a word in lower case probably stands for. "mbits" has
// one meaning; "mbps" means bits to most people and bytes to tc.
func bitsMeant(number, word string) []proposal {
	if bits := strings.TrimSuffix(word, "s"); isIn(bitUnits, bits) {
		return []proposal{{number + bits, ": bits are per second"}}
	}
	prefix, ok := strings.CutSuffix(strings.TrimSuffix(word, "ps"), "b")
	if bytes := strings.ToUpper(prefix) + "B"; ok && isIn(bitUnits, prefix+"bit") && isIn(sizeUnits, bytes) {
		return []proposal{{number + prefix + "bit", " for bits"}, {number + bytes + "/s", " for bytes"}}
	}
	return nil
}

// periodMeant returns the period that a text such as "sec", "15mins" or "2 days" probably
// stands for. It returns any other text unchanged.
func periodMeant(s string) string {
	s = strings.TrimSpace(s)
	if _, err := parsePeriod(s); err == nil {
		return s
	}
	number, word, err := cutNumber(s)
	if err != nil {
		number, word = fraction{1, 1}, s
	}
	one := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(word)), "s")
	for _, units := range [][]scale{periodWords, {{"", int64(time.Second)}, {"sec", int64(time.Second)}, {"min", int64(time.Minute)}, {"hr", int64(time.Hour)}}} {
		factor, ok := find(units, one)
		if period, err := number.times(factor, 1); word != "" && ok && err == nil && period.den == 1 {
			return formatPeriod(time.Duration(period.num))
		}
	}
	return s
}
