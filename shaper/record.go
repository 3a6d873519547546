package shaper

import (
	"encoding/binary"
	"slices"
	"time"

	"shaper/calendar"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A record is what a ledger keeps of a limiter: all that it takes to make a limiter that
// goes on from it, also under another policy.
type record struct {
	per     string    // policy.Per of the class, as text
	pace              // the part that makes a limiter
	numbers [][]int64 // of each limit: what it remembers
}

// leaseOf returns a lease of no units, with the record of a limiter at now.
func leaseOf(now time.Time, l limit.Limiter, p *pace, rate unit.Rate, per policy.Per) limit.Lease {
	m, _ := l.Memory(now)
	r := recordOf(now, l, p, rate, per)
	return limit.Lease{At: now, Until: now, Expires: m.Until, Record: r.encode()}
}

// recordOf returns the record of a limiter at now. p is its pace, and rate the rate at which its own
// limit runs.
func recordOf(now time.Time, l limit.Limiter, p *pace, rate unit.Rate, per policy.Per) record {
	l = bare(l)
	r := record{per: per.String(), pace: *p}
	parts := limit.Parts(l)
	for _, part := range parts[:min(len(parts), 1+len(p.also))] { // the provider says its hints again
		r.numbers = append(r.numbers, limit.Record(part, now))
	}
	r.rate = rate
	return r
}

// grow makes a lease one of some units that ends at until, and sets when it may be forgotten.
func (p *pace) grow(lease *limit.Lease, units int64, until time.Time) {
	lease.Units, lease.Until = units, until
	lease.Expires = later(lease.Expires, until)
	from := lease.Expires
	for r := range p.restraints() {
		expires := from
		for _, d := range []time.Duration{r.horizon(), r.horizon(), r.rate.Time(units)} {
			expires = limit.After(expires, d)
		}
		lease.Expires = later(lease.Expires, expires)
	}
}

// limiter returns the limiter of a record. It has let out what the lease allowed, as late as
// the lease allowed it, but no later than now. A limit with a short horizon has let out no more
// than may leave at once: the lease may be far larger. It is nil if the record makes no sense.
func (r *record) limiter(now time.Time, lease *limit.Lease) limit.Limiter {
	l := r.idle(lease.At)
	parts, at, i := limit.Parts(l), earlier(lease.Until, now), 0
	for of := range r.restraints() {
		if !limit.Recall(parts[i], lease.At, r.numbers[i]) {
			return nil
		}
		units := lease.Units
		if of.horizon() <= keptFrom {
			units = min(units, of.atOnce)
		}
		if units > 0 {
			parts[i].Take(at, at, units)
		}
		i++
	}
	return l
}

// keyText returns a key as a ledger has it.
func keyText(key policy.Key) string {
	text, _ := key.MarshalBinary() // it never fails
	return string(text)
}

// encode returns the record as bytes.
func (r *record) encode() (b []byte) {
	b = appendText(make([]byte, 0, 96), r.per)
	i := 0
	for of := range r.restraints() {
		b = of.append(b)
		b = binary.AppendUvarint(b, uint64(len(r.numbers[i])))
		for _, n := range r.numbers[i] {
			b = binary.AppendVarint(b, n)
		}
		i++
	}
	return b
}

// append appends a restraint to a record.
func (r *restraint) append(b []byte) []byte {
	b = appendText(appendText(b, string(r.algorithm)), r.rate.String())
	b = binary.AppendVarint(b, int64(r.window))
	b = binary.AppendVarint(b, r.atOnce)
	b = appendText(b, string(r.calendar.Period))
	if r.calendar.Period != "" {
		b = binary.AppendVarint(appendText(b, r.calendar.Zone.String()), int64(r.calendar.Reset))
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decodeRecord returns the record that encode has returned as bytes. It returns false for
// other bytes.
func decodeRecord(b []byte) (r record, ok bool) {
	d := decoder{rest: b}
	r.per = d.text()
	for first := true; first || len(d.rest) > 0 && !d.failed; first = false {
		of := d.restraint()
		if first {
			r.restraint = of
		} else {
			r.also = append(r.also, of)
		}
		d.failed = d.failed || of.kind != r.kind
		r.numbers = append(r.numbers, d.numbers())
	}
	return r, !d.failed
}

// A decoder takes a record apart.
type decoder struct {
	rest   []byte
	failed bool // something was missing, or made no sense
}

// restraint reads what restraint.append has appended.
func (d *decoder) restraint() (r restraint) {
	r.algorithm = policy.Algorithm(d.text())
	rate, err := unit.ParseRate(d.text())
	r.rate, r.kind = rate, rate.Kind()
	r.window, r.atOnce = time.Duration(d.number()), d.number()
	r.calendar.Period = calendar.Period(d.text())
	if r.calendar.Period != "" {
		d.failed = r.calendar.Zone.UnmarshalText([]byte(d.text())) != nil || d.failed
		r.calendar.Reset = calendar.Clock(d.number())
		d.failed = d.failed || calendar.PeriodOf(r.window) != r.calendar.Period || r.calendar.Reset < 0 || r.calendar.Reset >= 24*60
	}
	d.failed = d.failed || err != nil || !slices.Contains(policy.Algorithms, r.algorithm) ||
		r.algorithm.HasWindow() != (r.window > 0) || r.atOnce < 0
	return r
}

// numbers reads what a limiter remembers.
func (d *decoder) numbers() (all []int64) {
	n := d.length()
	for range n {
		all = append(all, d.number())
	}
	return all
}

// length reads how many follow. Each of them has at least one byte.
func (d *decoder) length() int {
	length, n := binary.Uvarint(d.rest)
	if n <= 0 || length > uint64(len(d.rest)-n) {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return int(length)
}

func (d *decoder) text() string {
	n := d.length()
	text := string(d.rest[:n])
	d.rest = d.rest[n:]
	return text
}

func (d *decoder) number() int64 {
	number, n := binary.Varint(d.rest)
	if n <= 0 {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return number
}
