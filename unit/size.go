package unit

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

var errNoUnit = errors.New("it has no unit")

// A scale is a unit's name and how many of the base unit it stands for.
type scale struct {
	name   string
	factor int64
}

// sizeUnits are in order of preference when printing.
var sizeUnits = []scale{
	{"B", 1},
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3},
	{"TiB", 1 << 40}, {"TB", 1e12},
}

func find(units []scale, name string) (factor int64, ok bool) {
	for _, u := range units {
		if u.name == name {
			return u.factor, true
		}
	}
	return 0, false
}

// format prints base*f in the shortest exact form among units; a point counts
// as two digits, and the first of equally long ones wins. It returns "" if none
// has room for all digits.
func format(f fraction, units []scale, base int64) string {
	best, length := "", 0
	for _, u := range units {
		amount, err := f.times(base, u.factor)
		if err != nil {
			continue
		}
		number, ok := amount.decimal()
		_, frac, point := strings.Cut(number, ".")
		if !ok || len(frac) > maxDecimals {
			continue
		}
		n := len(number) + len(u.name)
		if point {
			n++
		}
		if best == "" || n < length {
			best, length = number+u.name, n
		}
	}
	return best
}

// Size is a number of bytes.
type Size int64

// Sizes that code needs by name.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
)

// ParseSize reads a size such as "64KiB", "1MB" or "1500B". It must come to
// whole bytes.
func ParseSize(s string) (Size, error) {
	n, err := parseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %w; a size is like \"64KiB\", \"1MB\" or \"1500B\"", s, err)
	}
	return n, nil
}

func parseSize(s string) (Size, error) {
	number, word, err := cutNumber(s)
	if err != nil {
		return 0, err
	}
	if word == "" {
		return 0, errNoUnit
	}
	factor, ok := find(sizeUnits, word)
	if !ok {
		return 0, fmt.Errorf("%q is no unit of a size", word)
	}
	amount, err := number.times(factor, 1)
	if err != nil || amount.num/amount.den > maxAmount {
		return 0, errTooLarge
	}
	if amount.den != 1 {
		return 0, errors.New("it is not a whole number of bytes")
	}
	return Size(amount.num), nil
}

// String prints the size in the shortest form that ParseSize reads back.
func (n Size) String() string {
	if n < 0 { // nothing that is parsed
		return fmt.Sprintf("%dB", int64(n))
	}
	return format(fraction{int64(n), 1}, sizeUnits, 1)
}

// MarshalText is String.
func (n Size) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText is ParseSize.
func (n *Size) UnmarshalText(text []byte) (err error) {
	*n, err = ParseSize(string(text))
	return err
}

// Count is a number of things of one kind: "500 messages".
type Count struct {
	N    int64
	Kind Kind
}

// ParseCount reads a count such as "500 messages", "10 pkt" or "1000 items".
func ParseCount(s string) (Count, error) {
	c, err := parseCount(s)
	if err != nil {
		return Count{}, fmt.Errorf("%q is not a count: %w; a count is like \"500 messages\", \"10 packets\" or \"1000 items\"", s, err)
	}
	return c, nil
}

func parseCount(s string) (Count, error) {
	number, word, err := cutNumber(s)
	if err != nil {
		return Count{}, err
	}
	if word == "" {
		return Count{}, errNoUnit
	}
	kind, ok := kindOf(word)
	if !ok {
		return Count{}, fmt.Errorf("%q is no unit of a count", word)
	}
	if number.den != 1 {
		return Count{}, errors.New("it is not a whole number")
	}
	if number.num > maxAmount {
		return Count{}, errTooLarge
	}
	return Count{number.num, kind}, nil
}

// String prints the count as ParseCount reads it.
func (c Count) String() string { return fmt.Sprintf("%d %v", c.N, c.Kind) }

// MarshalText is String.
func (c Count) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is ParseCount.
func (c *Count) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCount(string(text))
	return err
}

// Percent is a share, in millionths of the whole: 3% is 30000.
type Percent int64

const percent Percent = 10_000

// ParsePercent reads a share such as "3%" or "2.5%", from 0% to below 100%.
func ParsePercent(s string) (Percent, error) {
	number, word, err := cutNumber(s)
	if err == nil && word != "%" {
		err = errors.New("it has no percent sign")
	}
	if err == nil {
		number, err = number.times(int64(percent), 1)
	}
	if err == nil && number.den != 1 {
		err = errTooPrecise
	}
	if err == nil && number.num >= int64(100*percent) {
		err = errTooLarge
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a share: %w; a share is like \"3%%\", from 0%% to below 100%%", s, err)
	}
	return Percent(number.num), nil
}

// String prints the share as ParsePercent reads it.
func (p Percent) String() string {
	return format(fraction{int64(p), int64(percent)}.reduced(), []scale{{"%", 1}}, 1)
}

// MarshalText is String.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePercent.
func (p *Percent) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePercent(string(text))
	return err
}

func compare(a, b int64) int { return cmp.Compare(a, b) }

// compareProducts compares a*b with c*d, none of them negative.
func compareProducts(a, b, c, d int64) int {
	h1, l1 := bits.Mul64(uint64(a), uint64(b))
	h2, l2 := bits.Mul64(uint64(c), uint64(d))
	if h1 != h2 {
		return cmp.Compare(h1, h2)
	}
	return cmp.Compare(l1, l2)
}
