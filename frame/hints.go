package frame

import (
	"bytes"
	"math"
	"time"
)

// A Hint is what an answer says of a limit of its provider: so many units remain for so long.
type Hint struct {
	ID        uint64 // tells the limits of a provider apart
	Unit      HintUnit
	Remaining int64
	For       time.Duration // from now on; above 0
}

// A HintUnit is what a limit of a provider counts.
type HintUnit uint8

// The units of hints.
const (
	HintOther HintUnit = iota // something that no message says
	HintRequests
	HintTokens
)

// Hints are what the head of an answer says of the limits of its provider.
type Hints struct {
	all     [mostHints]Hint
	n       int
	Unclear int // limits of which the head says something that makes no sense
}

const (
	mostHints     = 16
	longestHint   = 32 * 24 * time.Hour // a month; what lasts longer makes no sense
	mostRemaining = 1 << 53             // and so does more
)

// All returns the hints that make sense. They are valid as long as h.
func (h *Hints) All() []Hint { return h.all[:h.n] }

// Read reads the fields of a head at now. These say how much remains, and for how long:
//
//	RateLimit: "name";r=50;t=30              draft-ietf-httpapi-ratelimit-headers; RateLimit-Policy says the unit
//	RateLimit: limit=10, remaining=0, reset=5  the same, before version 8
//	RateLimit-Remaining, -Reset              the same, before version 7
//	X-RateLimit-Remaining, -Reset            GitHub; as X-Rate-Limit-... at X
//	x-ratelimit-remaining-requests, x-ratelimit-reset-requests; the same with tokens           OpenAI
//	anthropic-ratelimit-requests-remaining, -reset; with tokens, input-tokens, output-tokens   Anthropic
//
// In all but the first form, the time is one of: seconds; seconds since 1970; a duration such as
// 6m0s; a date (RFC 3339, RFC 9110). If the head has a Date, the provider's clock need not be right.
func (h *Hints) Read(fields []byte, now time.Time) {
	h.n, h.Unclear = 0, 0
	var r hintReader
	for len(fields) > 0 {
		line, rest, _ := bytes.Cut(fields, []byte("\n"))
		fields = rest
		name, value, _ := bytes.Cut(line, []byte(":"))
		if value = bytes.Trim(value, " \t\r"); value == nil {
			value = []byte{}
		}
		r.note(name, value)
	}
	if r.any {
		r.read(h, now)
	}
}

// A hintReader has the values of fields that say something of limits.
type hintReader struct {
	any    bool
	date   []byte
	lists  [4][]byte // of the fields RateLimit
	policy [4][]byte // of the fields RateLimit-Policy
	pairs  [hintFamilies * hintQualifiers]pair
}

// A pair is what two fields say of one limit.
type pair struct{ remaining, reset []byte }

// Families are the fields whose names begin alike. Qualifiers follow in some of these names.
const (
	hintFamilies   = len(hintPrefixes)
	hintQualifiers = len(hintUnits)
)

var hintPrefixes = [...]string{"ratelimit-", "x-ratelimit-", "x-rate-limit-", "anthropic-ratelimit-"}

// hintUnits are the units of qualifiers: none, requests, tokens, input-tokens, output-tokens.
var hintUnits = [...]HintUnit{HintRequests, HintRequests, HintTokens, HintTokens, HintTokens}

// note keeps the value of a field that says something of limits.
func (r *hintReader) note(name, value []byte) {
	switch {
	case len(name) < 4:
	case equalsLower(name, "date"):
		r.date = value
	case equalsLower(name, "ratelimit"):
		r.any = keep(&r.lists, value) || r.any
	case equalsLower(name, "ratelimit-policy"):
		keep(&r.policy, value)
	default:
		for family, prefix := range hintPrefixes {
			if len(name) > len(prefix) && equalsLower(name[:len(prefix)], prefix) {
				r.any = r.notePair(family, name[len(prefix):], value) || r.any
			}
		}
	}
}

// keep keeps the value of a field that may come more than once.
func keep(all *[4][]byte, value []byte) bool {
	for i := range all {
		if all[i] == nil {
			all[i] = value
			return true
		}
	}
	return false
}

// notePair keeps the value of a field whose name goes on with words. It reports whether that says
// something of a limit.
func (r *hintReader) notePair(family int, words, value []byte) bool {
	qualifier, what := 0, byte(0)
	for len(words) > 0 {
		var word []byte
		word, words, _ = bytes.Cut(words, []byte("-"))
		switch {
		case equalsLower(word, "remaining"), equalsLower(word, "reset"):
			what = word[2] | 0x20 // m or s
		case equalsLower(word, "requests"):
			qualifier = 1
		case equalsLower(word, "tokens"):
			qualifier = max(qualifier, 2)
		case equalsLower(word, "input"):
			qualifier = 3
		case equalsLower(word, "output"):
			qualifier = 4
		default:
			return false
		}
	}
	p := &r.pairs[family*hintQualifiers+qualifier]
	switch what {
	case 'm':
		p.remaining = value
	case 's':
		p.reset = value
	}
	return what != 0
}

// read turns the values into hints.
func (r *hintReader) read(h *Hints, now time.Time) {
	for _, list := range r.lists {
		r.readList(h, list, now)
	}
	for i, p := range r.pairs {
		if p.remaining == nil {
			continue
		}
		d, ok := r.until(p.reset, now)
		h.add(Hint{ID: uint64(i + 1), Unit: hintUnits[i%hintQualifiers]}, p.remaining, d, ok)
	}
}

// add adds a hint for which so much remains, as text, for so long. ok is false if nobody knows for
// how long.
func (h *Hints) add(hint Hint, remaining []byte, d time.Duration, ok bool) {
	n, whole := decimal(remaining)
	switch {
	case !ok || !whole || n > mostRemaining || d > longestHint:
		h.Unclear++
	case d > 0 && h.n < mostHints: // else the limit is renewed already
		hint.Remaining, hint.For = n, d
		h.all[h.n] = hint
		h.n++
	}
}

// readList reads a field RateLimit.
func (r *hintReader) readList(h *Hints, list []byte, now time.Time) {
	var old pair
	for len(list) > 0 {
		var item []byte
		item, list = cutOutside(list, ',')
		name, parameters := cutOutside(item, ';')
		if key, value, ok := bytes.Cut(name, []byte("=")); ok && name[0] != '"' {
			switch {
			case equalsLower(key, "remaining"):
				old.remaining = value
			case equalsLower(key, "reset"):
				old.reset = value
			}
			continue
		}
		if len(name) > 0 {
			r.readItem(h, name, parameters)
		}
	}
	if old.remaining != nil {
		d, ok := r.until(old.reset, now)
		h.add(Hint{ID: math.MaxUint64, Unit: HintRequests}, old.remaining, d, ok)
	}
}

// readItem reads an item of a list: the name of a limit, and its parameters.
func (r *hintReader) readItem(h *Hints, name, parameters []byte) {
	policy := r.policyOf(name)
	hint := Hint{ID: idOf(name, parameter(parameters, "pk")), Unit: HintRequests}
	switch unit := bytes.Trim(parameter(policy, "qu"), `"`); {
	case len(unit) == 0, equalsLower(unit, "requests"):
	case equalsLower(unit, "tokens"):
		hint.Unit = HintTokens
	default:
		hint.Unit = HintOther
	}
	lasts := parameter(parameters, "t")
	if lasts == nil {
		lasts = parameter(policy, "w") // it cannot last longer
	}
	d, ok := inSeconds(lasts)
	h.add(hint, parameter(parameters, "r"), d, ok)
}

// policyOf returns the parameters of the policy with a name; nil if there is none.
func (r *hintReader) policyOf(name []byte) []byte {
	for _, list := range r.policy {
		for len(list) > 0 {
			var item []byte
			item, list = cutOutside(list, ',')
			if of, parameters := cutOutside(item, ';'); bytes.Equal(of, name) {
				return parameters
			}
		}
	}
	return nil
}

// cutOutside cuts a text around the first separator that stands in no string (RFC 9651, 3.3.3),
// and spaces from both parts.
func cutOutside(text []byte, separator byte) (before, after []byte) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return bytes.Trim(text[:i], " \t"), bytes.Trim(text[i+1:], " \t")
		}
	}
	return bytes.Trim(text, " \t"), nil
}

// parameter returns the value of a parameter of an item; nil if it has none.
func parameter(parameters []byte, key string) []byte {
	for len(parameters) > 0 {
		var one []byte
		one, parameters = cutOutside(parameters, ';')
		if name, value, ok := bytes.Cut(one, []byte("=")); ok && equalsLower(name, key) {
			return value
		}
	}
	return nil
}

// idOf returns the ID of a limit with a name, for a partition: FNV-1a. It is none of those of pairs.
func idOf(name, partition []byte) uint64 {
	id := uint64(14695981039346656037)
	for _, text := range [...][]byte{name, partition} {
		for _, c := range text {
			id = (id ^ uint64(c)) * 1099511628211
		}
	}
	return id | 1<<63
}
