package daemon

import (
	"errors"
	"net/http"

	"shaper/policy"
)

// PolicyText is the body of POST /v1/diff and of POST /v1/shadow: a policy that is not in force.
type PolicyText struct {
	File   string        `json:"file"`             // the name of the policy file, for its errors
	Text   string        `json:"text"`             // the contents of the file
	Pieces []policy.File `json:"pieces,omitempty"` // the files that it includes, in their order
}

// maxPolicyBody bounds such a body, in bytes: an escaped policy file.
const maxPolicyBody = 64 << 20

// policyText returns the policy in the body of a request.
func policyText(r *http.Request) (text PolicyText, err error) {
	if err = decode(r, &text); err == nil && text.File == "" {
		err = usageError("file: the name of the policy file is missing")
	}
	return text, err
}

// parseAs parses the policy as that of a file.
func (t PolicyText) parseAs(file string) (*policy.Policy, policy.Errors, error) {
	return policy.ParseFiles(append([]policy.File{{Name: file, Text: t.Text}}, t.Pieces...))
}

// Compared is the answer to POST /v1/diff: what a reload would change.
type Compared struct {
	InForce  string          `json:"in_force"` // hash of the policy in force
	Hash     string          `json:"hash"`     // hash of the other one
	Changes  []policy.Change `json:"changes"`  // what the other one would change, with all that is set
	Warnings policy.Errors   `json:"warnings"`
}

// serveDiff compares a policy with what is in force. It looks at no address and no other file, so it does
// not know whether what stands in place of the path of a secret is one.
func (d *daemon) serveDiff(_ caller, r *http.Request) (any, error) {
	ask, err := policyText(r)
	if err != nil {
		return nil, err
	}
	p, warnings, err := d.keeper.inPlace(ask)
	if err != nil {
		return nil, err
	}
	now := d.keeper.view.Load().policy
	p.HideUntried(now)
	return Compared{now.Hash, p.Hash, append([]policy.Change{}, policy.Diff(now, p)...), append(policy.Errors{}, warnings...)}, nil
}

// inPlace parses a policy as if it were in the place of the policy file, so that its relative paths
// mean what they would mean there. Errors and warnings have the name that it has now.
func (k *keeper) inPlace(text PolicyText) (*policy.Policy, policy.Errors, error) {
	p, warnings, err := text.parseAs(k.path)
	var mistakes policy.Errors
	errors.As(err, &mistakes)
	for _, all := range []policy.Errors{warnings, mistakes} {
		for i := range all {
			if all[i].File == k.path {
				all[i].File = text.File
			}
		}
	}
	return p, warnings, err
}
