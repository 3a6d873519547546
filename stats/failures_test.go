package stats

import "testing"

// Read returns every reason for each upstream in names, and no other upstream.
func TestUpstreamFailures(t *testing.T) {
	var l Listener
	l.Failed.Add("a:1", NotServed)
	l.Failed.Add("a:1", NotServed)
	l.Failed.Add("gone:1", NoTLS)
	r := l.Read()
	r.UpstreamFailures = l.Failed.Read([]string{"a:1", "b:1"})
	want := `{"a:1":{"local":0,"name":0,"ports":0,"refused":2,"reset":0,"timeout":0,"tls":0,"unreachable":0},` +
		`"b:1":{"local":0,"name":0,"ports":0,"refused":0,"reset":0,"timeout":0,"tls":0,"unreachable":0}}`
	if got := encode(t, r.UpstreamFailures); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var why Failure
	if err := why.UnmarshalText([]byte("tls")); err != nil || why != NoTLS {
		t.Errorf("tls reads as %v, %v", why, err)
	}
	if err := why.UnmarshalText([]byte("never")); err == nil {
		t.Error("never, which is not a failure, is read")
	}
}
