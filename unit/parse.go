package unit

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// parseRate is ParseRate without the remedy in the error.
func parseRate(s string) (Rate, error) {
	number, word, err := cutNumber(s)
	if err != nil {
		return Rate{}, err
	}
	if word == "" {
		return Rate{}, errNoUnit
	}
	// tc prints "20Mbit". No other unit differs from a unit of bits only by case.
	if bit, ok := find(bitUnits, strings.ToLower(word)); ok {
		return newRate(Bytes, number, bit, 8, time.Second)
	}
	word, period, found := strings.Cut(word, "/")
	word = strings.TrimRight(word, " ")
	kind, factor, ok := rateUnit(word)
	switch {
	case word == "":
		return Rate{}, errors.New("it does not say what it counts")
	case word[0] == ',':
		return Rate{}, errors.New("a number has no commas")
	case !ok:
		return Rate{}, fmt.Errorf("%q is not a unit of a rate", word)
	}
	if !found {
		return Rate{}, errors.New("it has no period, such as \"/s\"")
	}
	per, err := parsePeriod(period)
	if err != nil {
		return Rate{}, err
	}
	return newRate(kind, number, factor, 1, per)
}

// rateUnit returns what the word before the slash counts, and how many units it stands for.
func rateUnit(word string) (kind Kind, factor int64, ok bool) {
	if size, ok := find(sizeUnits, word); ok {
		return Bytes, size, true
	}
	kind, ok = kindOf(word)
	return kind, 1, ok && kind != Items
}

// newRate returns number*n/d units of kind per period, or an error if that exceeds the
// bounds of a rate.
func newRate(kind Kind, number fraction, n, d int64, per time.Duration) (Rate, error) {
	amount, err := number.times(n, d)
	if err != nil || amount.num/amount.den > maxAmount {
		return Rate{}, errTooLarge
	}
	r, ok := rateOf(kind, amount, per)
	if !ok {
		return Rate{}, errTooPrecise
	}
	return r, nil
}

// rateOf returns an amount of units of kind per period. It returns false if Exact could not return
// that without overflow, or String could not print all its digits.
func rateOf(kind Kind, amount fraction, per time.Duration) (r Rate, ok bool) {
	ns, ok := mul(int64(per), amount.den)
	if !ok || amount.num > maxAmount*8 || finest(kind, per)%amount.den != 0 {
		return Rate{}, false
	}
	r = Rate{kind: kind, amount: amount, per: per}
	if amount.num > 0 {
		r.exact = fraction{amount.num, ns}.reduced()
	}
	return r, true
}

// finest returns the largest denominator of an amount that String can print.
func finest(kind Kind, per time.Duration) int64 {
	if kind == Bytes && per == time.Second {
		return 8 * decimals // as bits
	}
	return decimals
}

// parsePeriod reads the period after the slash: "s", "min", "15min" or "day".
func parsePeriod(s string) (time.Duration, error) {
	s = strings.TrimLeft(s, " ")
	if s == "" {
		return 0, errors.New("it has no period after the slash")
	}
	for _, units := range [][]scale{timeUnits, periodWords} {
		if factor, ok := find(units, s); ok {
			return time.Duration(factor), nil
		}
	}
	per, err := parseDuration(s)
	if errors.Is(err, errNoNumber) {
		err = fmt.Errorf("%q is not a unit of time", s)
	}
	if err != nil {
		return 0, fmt.Errorf("the period: %w", err)
	}
	if per <= 0 || per > maxPeriod {
		return 0, fmt.Errorf("the period must be above 0s and at most %s", FormatDuration(maxPeriod))
	}
	return per, nil
}

// periodWords are words for periods. A day is always 24 hours, a week 7 days and a month 30
// days: calendars and daylight saving time do not matter.
var periodWords = []scale{
	{"second", int64(time.Second)}, {"minute", int64(time.Minute)}, {"hour", int64(time.Hour)},
	{"day", int64(day)}, {"week", int64(7 * day)}, {"month", int64(30 * day)},
}

// formatPeriod prints the period after the slash: "s", "15min" or "day".
func formatPeriod(per time.Duration) string {
	switch per {
	case day:
		return "day"
	case 7 * day:
		return "week"
	case 30 * day:
		return "month"
	}
	text := FormatDuration(per)
	if short := strings.TrimPrefix(text, "1"); short[0] > '9' { // "15min" keeps its digits
		return short
	}
	return text
}

// bitUnits are the units of bits; format prefers the first ones.
var bitUnits = []scale{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}, {"tbit", 1e12}}
