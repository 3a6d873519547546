package simulate

import (
	"io"

	"shaper/policy"
)

// ReadCapture is for programs outside a browser: what takes packets apart would double the size of
// the playground.
func ReadCapture(_ *policy.Policy, name string, _ io.Reader) (Source, error) {
	return Source{}, policy.Errors{{File: name, Key: "trace", Problem: "a browser does not read captures", Allowed: ".csv or .jsonl; or shaper simulate --trace"}}
}
