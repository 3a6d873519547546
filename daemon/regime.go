package daemon

import (
	"slices"
	"time"

	"shaper/policy"
)

// Set is a change of a class that `shaper set` has made over the policy file.
type Set struct {
	Class  string            `json:"class"`
	Values map[string]string `json:"values"`         // by key, as in the policy file
	Until  time.Time         `json:"until,omitzero"` // zero: until the next reload
}

// endedBy reports whether the set has ended at now.
func (s Set) endedBy(now time.Time) bool { return !s.Until.IsZero() && !now.Before(s.Until) }

// regime is what is in force: a policy file, and the sets over it. It does not change; a
// change makes a new regime.
type regime struct {
	file     *policy.Policy
	warnings policy.Errors  // of the file
	files    files          // that the file names, as they were when it was loaded
	sets     []Set          // in the order in which they came
	policy   *policy.Policy // the file with the sets applied
}

func newRegime(file *policy.Policy, warnings policy.Errors, named files) regime {
	return regime{file: file, warnings: warnings, files: named, policy: file}
}

// with returns the regime with one more set. It drops the sets that the new one supersedes.
// The warnings and the error are those of [policy.Policy.With].
func (r regime) with(s Set) (regime, policy.Errors, error) {
	p, warnings, err := r.policy.With(s.Class, s.Values)
	if err != nil {
		return r, nil, err
	}
	r.sets, r.policy = append(slices.DeleteFunc(slices.Clone(r.sets), s.supersedes), s), p
	return r, warnings, nil
}

// supersedes reports whether nothing of an earlier set can come into force again after s: it
// sets the same keys of the same class, for at least as long.
func (s Set) supersedes(earlier Set) bool {
	if s.Class != earlier.Class || !s.Until.IsZero() && (earlier.Until.IsZero() || earlier.Until.After(s.Until)) {
		return false
	}
	for key := range earlier.Values {
		if _, ok := s.Values[key]; !ok {
			return false
		}
	}
	return true
}

// withoutEnded returns the regime without the sets that have ended at now, and those sets. A
// set that is invalid without one that has ended ends with it.
func (r regime) withoutEnded(now time.Time) (next regime, ended []Set) {
	next = newRegime(r.file, r.warnings, r.files)
	for _, s := range r.sets {
		if s.endedBy(now) {
			ended = append(ended, s)
			continue
		}
		with, _, err := next.with(s)
		if err != nil {
			ended = append(ended, s)
			continue
		}
		next = with
	}
	return next, ended
}

// firstEnd returns when the next set ends; the zero Time if none does.
func (r regime) firstEnd() (first time.Time) {
	for _, s := range r.sets {
		first = earlier(first, s.Until)
	}
	return first
}

// earlier returns the earlier of two times. The zero Time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// setClasses returns the names of the classes that a set changes.
func (r regime) setClasses() map[string]bool {
	names := map[string]bool{}
	for _, s := range r.sets {
		names[s.Class] = true
	}
	return names
}
