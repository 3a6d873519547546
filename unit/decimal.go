package unit

import (
	"cmp"
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

// maxDecimals is how many digits may follow the point. It keeps a denominator, which is at
// most decimals, far below 2^63.
const (
	maxDecimals = 9
	decimals    = 1e9 // 10^maxDecimals
)

// A fraction is an exact non-negative amount num/den, in lowest terms.
type fraction struct{ num, den int64 }

// cutNumber splits "1.5 mbit" into the exact number and the word after it, without the
// spaces between them.
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
	// Cancel common factors across the product, so that it is in lowest terms.
	by := fraction{n, d}.reduced()
	a, b := fraction{f.num, by.den}.reduced(), fraction{by.num, f.den}.reduced()
	num, ok1 := mul(a.num, b.num)
	den, ok2 := mul(a.den, b.den)
	if !ok1 || !ok2 {
		return fraction{}, errTooLarge
	}
	return fraction{num, den}, nil
}

// timesDown returns f*n/d, rounded down to a multiple of 1/den. It returns false on
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

// decimal prints f exactly. It returns false if f has more than 18 digits after the point,
// or infinitely many. A parsed number has finitely many.
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

// mul returns a*b for non-negative a and b. It returns false on overflow.
func mul(a, b int64) (p int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}

// mulDiv returns a*b/c rounded down, and whether that is inexact. It saturates at MaxInt64.
// a and b are not negative, and c is positive.
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

var errNoUnit = errors.New("it has no unit")

// A scale is the name of a unit and how many base units it stands for.
type scale struct {
	name   string
	factor int64
}

func find(units []scale, name string) (factor int64, ok bool) {
	for _, u := range units {
		if u.name == name {
			return u.factor, true
		}
	}
	return 0, false
}

func isIn(units []scale, name string) bool {
	_, ok := find(units, name)
	return ok
}

// format prints base*f exactly in the unit that makes it shortest. A point counts as two
// characters, and the first of equally short forms wins. It returns "" if every unit needs
// more than maxDecimals digits after the point.
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

func compare(a, b int64) int { return cmp.Compare(a, b) }

// compareProducts compares a*b with c*d. None of them is negative.
func compareProducts(a, b, c, d int64) int {
	h1, l1 := bits.Mul64(uint64(a), uint64(b))
	h2, l2 := bits.Mul64(uint64(c), uint64(d))
	if h1 != h2 {
		return cmp.Compare(h1, h2)
	}
	return cmp.Compare(l1, l2)
}
