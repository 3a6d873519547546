package unit

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

var (
	errNoNumber   = errors.New("it does not begin with a number")
	errTooLarge   = errors.New("it is too large")
	errTooPrecise = errors.New("it has more digits than can be kept exactly")
)

// maxDecimals bounds the digits behind the point, so that a denominator, at
// most decimals, stays far below 2^63.
const (
	maxDecimals = 9
	decimals    = 1e9
)

// A fraction is an exact non-negative amount num/den, in lowest terms.
type fraction struct{ num, den int64 }

// cutNumber splits "1.5mbit" into the exact number and the word behind it,
// without the spaces between them.
func cutNumber(s string) (fraction, string, error) {
	end := 0
	for end < len(s) && (s[end] == '.' || '0' <= s[end] && s[end] <= '9') {
		end++
	}
	whole, frac, point := strings.Cut(s[:end], ".")
	if whole == "" || point && frac == "" || strings.Contains(frac, ".") {
		return fraction{}, "", errNoNumber
	}
	if frac = strings.TrimRight(frac, "0"); len(frac) > maxDecimals {
		return fraction{}, "", errTooPrecise
	}
	num, err := strconv.ParseInt(whole+frac, 10, 64)
	if err != nil {
		return fraction{}, "", errTooLarge
	}
	den := int64(math.Pow10(len(frac)))
	return fraction{num, den}.reduced(), strings.TrimLeft(s[end:], " "), nil
}

// reduced returns f in lowest terms; zero is 0/1.
func (f fraction) reduced() fraction {
	g := gcd(f.num, f.den)
	return fraction{f.num / g, f.den / g}
}

// times returns f*n/d exactly, or errTooLarge.
func (f fraction) times(n, d int64) (fraction, error) {
	// Reduce crosswise first: then the products are in lowest terms.
	by := fraction{n, d}.reduced()
	a, b := fraction{f.num, by.den}.reduced(), fraction{by.num, f.den}.reduced()
	num, ok1 := mul(a.num, b.num)
	den, ok2 := mul(a.den, b.den)
	if !ok1 || !ok2 {
		return fraction{}, errTooLarge
	}
	return fraction{num, den}, nil
}

// timesDown returns f*n/d rounded down to a multiple of 1/den; ok is false on
// overflow.
func (f fraction) timesDown(n, d, den int64) (_ fraction, ok bool) {
	num := product(f.num, n, den)
	num.Quo(num, product(f.den, d))
	if !num.IsInt64() {
		return fraction{}, false
	}
	return fraction{num.Int64(), den}.reduced(), true
}

func product(factors ...int64) *big.Int {
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, big.NewInt(f))
	}
	return p
}

// decimal prints f exactly. The denominator of whatever is parsed is one of
// twos and fives, so its digits end; ok is false where they would not.
func (f fraction) decimal() (s string, ok bool) {
	s = strconv.FormatInt(f.num/f.den, 10)
	rest := f.num % f.den
	if rest == 0 {
		return s, true
	}
	var digits strings.Builder
	for n := 0; rest != 0; n++ {
		if n == 18 || rest > math.MaxInt64/10 {
			return "", false
		}
		rest *= 10
		digits.WriteByte(byte('0' + rest/f.den))
		rest %= f.den
	}
	return s + "." + digits.String(), true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mul returns a*b for non-negative a and b; ok is false on overflow.
func mul(a, b int64) (p int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}

// mulDiv returns a*b/c rounded down, and whether something was cut off. It
// saturates at MaxInt64. a and b are not negative, c is positive.
func mulDiv(a, b, c int64) (q int64, inexact bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64, true
	}
	u, r := bits.Div64(hi, lo, uint64(c))
	if u > math.MaxInt64 {
		return math.MaxInt64, true
	}
	return int64(u), r != 0
}
