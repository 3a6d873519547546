package web

import (
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Source with one class and one session.
type fake struct {
	asked   atomic.Int64 // how often it was asked for classes
	sampled atomic.Int64 // and for samples
	work    func()       // what it does when it is asked for sessions; nil: nothing
	body    string       // of the session
}

func (*fake) Hosts() []string { return []string{"shaper.example.com"} }
func (*fake) Summary() any    { return "summary" }

func (f *fake) Classes() []Class {
	f.asked.Add(1)
	return []Class{{Name: "otp", Items: 3}}
}

func (f *fake) Samples() []Sample {
	return []Sample{{Name: "otp", Unit: "messages", Sent: uint64(10 * f.sampled.Add(1)), Items: 3}}
}

func (*fake) Class(name string) (reading any, why string, ok bool) {
	return "all of " + name, "it waits", name == "otp"
}

func (f *fake) List(name string) any {
	if name != "sessions" {
		return nil
	}
	if f.work != nil {
		f.work()
	}
	return []string{"one", f.body}
}

// huge is more than the server keeps for a browser that does not read.
var huge = strings.Repeat("x", 64<<10)
