package unit

import (
	"errors"
	"fmt"
)

// sizeUnits are the units of bytes; format prefers the first ones.
var sizeUnits = []scale{
	{"B", 1},
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3},
	{"TiB", 1 << 40}, {"TB", 1e12},
}

// Size is a number of bytes.
type Size int64

// The sizes that code needs by name.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
)

// ParseSize reads a size such as "64KiB", "1MB" or "1500B". It must be a whole number of
// bytes.
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
		return 0, fmt.Errorf("%q is not a unit of a size", word)
	}
	amount, err := number.times(factor, 1)
	if err != nil || amount.num/amount.den > maxAmount {
		return 0, fmt.Errorf("%w: the largest is %q", errTooLarge, Size(maxAmount).String())
	}
	if amount.den != 1 {
		return 0, errors.New("it is not a whole number of bytes")
	}
	return Size(amount.num), nil
}

// String prints the size in the shortest form that ParseSize reads back.
func (n Size) String() string {
	if n < 0 { // ParseSize does not return it
		return fmt.Sprintf("%dB", int64(n))
	}
	return format(fraction{int64(n), 1}, sizeUnits, 1)
}

// MarshalText returns String.
func (n Size) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads the text with ParseSize.
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
		return Count{}, fmt.Errorf("%q is not a unit of a count", word)
	}
	if number.den != 1 {
		return Count{}, errors.New("it is not a whole number")
	}
	if number.num > maxAmount {
		return Count{}, fmt.Errorf("%w: the largest is %d", errTooLarge, int64(maxAmount))
	}
	return Count{number.num, kind}, nil
}

// String prints the count so that ParseCount reads it back.
func (c Count) String() string { return fmt.Sprintf("%d %v", c.N, c.Kind) }

// MarshalText returns String.
func (c Count) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the text with ParseCount.
func (c *Count) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCount(string(text))
	return err
}

// Percent is a share in millionths of the whole: 3% is 30000.
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

// String prints the share so that ParsePercent reads it back.
func (p Percent) String() string {
	return format(fraction{int64(p), int64(percent)}.reduced(), []scale{{"%", 1}}, 1)
}

// MarshalText returns String.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text with ParsePercent.
func (p *Percent) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePercent(string(text))
	return err
}
