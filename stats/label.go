package stats

import (
	"fmt"
	"iter"
)

// Directions iterates over both directions, in the order in which tables show them.
func Directions() iter.Seq[Direction] { return all(directions) }

// Reasons iterates over all reasons.
func Reasons() iter.Seq[Reason] { return all(reasons) }

// Results iterates over all results.
func Results() iter.Seq[Result] { return all(results) }

func all[T ~uint8](end T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range end {
			if !yield(v) {
				return
			}
		}
	}
}

// MarshalText returns String, so that directions can be keys of JSON objects.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Direction) UnmarshalText(text []byte) error {
	return unmarshal(d, directionNames[:], "direction", text)
}

// MarshalText returns String, so that reasons can be keys of JSON objects.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (r *Reason) UnmarshalText(text []byte) error {
	return unmarshal(r, reasonNames[:], "reason", text)
}

// MarshalText returns String, so that results can be keys of JSON objects.
func (r Result) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (r *Result) UnmarshalText(text []byte) error {
	return unmarshal(r, resultNames[:], "result", text)
}

func unmarshal[T ~uint8](v *T, names []string, what string, text []byte) error {
	for i, name := range names {
		if name == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("stats: %q is not a %s", text, what)
}
