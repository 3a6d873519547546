package policy

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"shaper/unit"
)

// Reads is what a class reads in its messages and in their answers. The zero Reads is nothing.
type Reads struct {
	// Cost says what a message costs. If it is nil, the nearest class above that counts the same
	// unit and has a Cost says it. Without any, a message costs 1.
	Cost *Cost `json:"cost,omitempty"`
	// Settle says where the answer has what the message really costs. If it is nil, the message
	// keeps what it was charged.
	Settle *Place `json:"settle,omitempty"`
	// ThrottledBy says which answers mean "too fast", beside those of the protocol. It may be nil.
	ThrottledBy *Signal `json:"throttled_by,omitempty"`
	// Hints says that the class keeps to what answers say of the provider's limits: how much of them
	// remains.
	Hints bool `json:"hints,omitempty"`
}

// ReadsAnswers reports whether answers have to be read.
func (r *Reads) ReadsAnswers() bool { return r.Settle != nil || r.ThrottledBy != nil || r.Hints }

// A Cost says what a message costs, in the unit of the class. One of the fields in the first
// group is set.
type Cost struct {
	Units    int64  `json:"units,omitempty"`    // each message costs so much
	Header   string `json:"header,omitempty"`   // http: the field with this name says it
	JSON     Path   `json:"json,omitempty"`     // http: this place in the body says it
	Bytes    int64  `json:"bytes,omitempty"`    // one unit for each so many bytes: of the body for http, else of the message
	Segments bool   `json:"segments,omitempty"` // smpp: the parts in which the text is sent

	// Default is the cost if the message does not say it; 0 stands for 1.
	Default int64 `json:"default,omitempty"`
	// Max is the highest cost; 0 stands for DefaultMaxCost.
	Max int64 `json:"max,omitempty"`
}

// DefaultMaxCost bounds what a message may cost if the policy does not. A message that claims
// more would stop its class for hours.
const DefaultMaxCost = 1_000_000

// Of returns the cost of a message that says n; ok is false if it says nothing. The result is
// at least 1, because what costs nothing does not wait.
func (c *Cost) Of(n int64, ok bool) int64 {
	switch {
	case c.Units > 0:
		return c.Units
	case !ok:
		n = c.Default
	}
	return min(max(n, 1), c.Most())
}

// Most returns the highest cost.
func (c *Cost) Most() int64 {
	if c.Max > 0 {
		return c.Max
	}
	return DefaultMaxCost
}

// More returns how much more a message costs than it was charged, if its answer says that it costs so many; less than 0
// if it costs less. A charge does not rise above the highest cost. nil is the zero Cost.
func (c *Cost) More(charged, says int64) int64 {
	if c == nil {
		c = &Cost{}
	}
	return min(says, max(c.Most(), charged)) - charged
}

// InBytes returns the cost of so many bytes, however many a peer says they are.
func (c *Cost) InBytes(n int64) int64 { return c.Of(max(n-1, 0)/c.Bytes+1, true) }

// Number reads a number that a message or an answer says. It is not negative, and is rounded up.
func Number(text string) (n int64, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, n >= 0
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f < 1<<53) {
		return 0, false
	}
	return int64(math.Ceil(f)), true
}

// ReadsBody reports whether the cost stands in the body of a request.
func (c *Cost) ReadsBody() bool { return c.JSON != "" }

// protocol returns the protocol whose messages say the cost; "" if those of all do.
func (c *Cost) protocol() Protocol {
	switch {
	case c.Header != "", c.JSON != "":
		return HTTP
	case c.Segments:
		return SMPP
	}
	return ""
}

// sources returns how many things say the cost.
func (c *Cost) sources() (n int) {
	for _, set := range []bool{c.Units > 0, c.Header != "", c.JSON != "", c.Bytes > 0, c.Segments} {
		if set {
			n++
		}
	}
	return n
}

// A Place is where the answer to a request says something: in a field of its head, or in its
// body. One of both is set.
type Place struct {
	Header string `json:"header,omitempty"`
	JSON   Path   `json:"json,omitempty"`
}

// A Signal says which answers mean "too fast": those that have one of some values in a place.
type Signal struct {
	Header string   `json:"header,omitempty"`
	JSON   Path     `json:"json,omitempty"`
	Equals []string `json:"equals"`
}

// A Path leads to a value in a document of JSON: the names of members with points between them.
// In an array, a number is an index from 0 on, and "*" stands for each item.
type Path string

// problem says what is wrong with the path; "" if nothing is.
func (p Path) problem() string {
	switch names := strings.Split(string(p), "."); {
	case slices.Contains(names, ""):
		return "has an empty name"
	case len(names) > 16:
		return "is too deep"
	}
	return ""
}

// foreignPath finds what stands in paths of other programs between names: brackets as in JSONPath.
var foreignPath = regexp.MustCompile(`\.?\[(?:'([^'.]*)'|"([^".]*)"|(\d+|\*))\]`)

// plain returns a path that is written as in JSONPath ("$.a[0]") or as a JSON Pointer ("/a/0") as it is written here ("a.0"),
// and any other one as it is. An empty name is no path here, so it stays as it is, too.
func (p Path) plain() Path {
	s := string(p)
	switch {
	case strings.HasPrefix(s, "/"):
		s = strings.ReplaceAll(s[1:], "/", ".")
	case strings.HasPrefix(s, "#/"):
		s = strings.ReplaceAll(s[2:], "/", ".")
	default:
		s = strings.TrimPrefix(foreignPath.ReplaceAllString(s, ".$1$2$3"), ".")
		s = strings.TrimPrefix(s, "$.")
	}
	if Path(s).problem() != "" {
		return p
	}
	return Path(s)
}

// costOf returns what says the cost of the messages of a class in a unit: the nearest class on
// the path to the root that counts in it and has a cost; nil if none does. above returns the
// class above another one; nil for none.
func costOf(class *Class, kind unit.Kind, above func(*Class) *Class) *Cost {
	for ; class != nil; class = above(class) {
		if class.Rate.Kind() == kind && class.Cost != nil {
			return class.Cost
		}
	}
	return nil
}
