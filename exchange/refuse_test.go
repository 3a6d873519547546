package exchange_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// A refusal does not follow an answer that ends with its connection: it would be a part of the body.
func TestNoRefusalBehindAnAnswerToTheEnd(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\nmax_wait = \"1ms\"\n")
	w.send(get + get)
	answer := ok + "\r\nhi"
	w.Down.Ends = io.EOF
	if w.answer(answer); string(w.Down.Got) != answer || !w.Down.Told {
		t.Errorf("the client gets %q, and is told of the end: %v", w.Down.Got, w.Down.Told)
	}
	if w.Up.Ends = io.EOF; !w.Over {
		w.Drive(w.Now)
	}
	if n := w.classes["c"].Stats.Refused[stats.MaxWait].Items.Load(); !w.Over || n != 1 {
		t.Errorf("the connection has ended: %v; %d were refused", w.Over, n)
	}
}

// A refusal names the limit that makes the client wait: one of the class or of a class above it, in the window in which it
// counts.
func TestRefusalNamesTheLimit(t *testing.T) {
	const (
		soon  = "max_wait = \"1ms\"\n"
		quick = "rate = \"20 messages/s\"\n"
	)
	for name, c := range map[string]struct {
		classes string
		want    string // the policy; "" for none
	}{
		"own":                    {"[class.c]\n" + quick + soon, `"c";q=20;w=1`},
		"also":                   {"[class.c]\n" + quick + soon + `also = ["1 messages/h"]`, `"c";q=1;w=3600`},
		"the slowest of also":    {"[class.c]\n" + quick + soon + `also = ["2 messages/h", "1 messages/day", "1 messages/min"]`, `"c";q=1;w=86400`},
		"a class above":          {"[class.account]\nrate = \"1 messages/min\"\n[class.c]\nparent = \"account\"\n" + quick + soon, `"account";q=1;w=60`},
		"also of a class above":  {"[class.account]\n" + quick + "also = [\"1 messages/h\"]\n[class.c]\nparent = \"account\"\n" + quick + soon, `"account";q=1;w=3600`},
		"its own, beneath one":   {"[class.account]\nrate = \"100 messages/s\"\n[class.c]\nparent = \"account\"\n" + quick + soon, `"c";q=20;w=1`},
		"a bucket":               {"[class.c]\n" + quick + soon + "per = \"path\"\nalso = [\"1 messages/h\"]", `"c";q=1;w=3600`},
		"above a bucket":         {"[class.account]\nrate = \"1 messages/min\"\n[class.c]\nparent = \"account\"\n" + quick + soon + "per = \"path\"", `"account";q=1;w=60`},
		"less than one a second": {"[class.c]\nrate = \"0.5 messages/s\"\n" + soon, `"c";q=1;w=2`},
		"a window":               {"[class.c]\nalgorithm = \"fixed-window\"\nrate = \"0.1 messages/s\"\nwindow = \"10s\"\n" + soon, `"c";q=1;w=10`},
		"with headroom":          {"[class.c]\nrate = \"20 messages/s\"\nheadroom = \"10%\"\n" + soon, `"c";q=20;w=1`},
		"tokens above":           {"[class.account]\nrate = \"1 tokens/min\"\ncost = 1\n[class.c]\nparent = \"account\"\n" + quick + soon, `"account";q=1;w=60;qu="tokens"`},
		"bytes above":            {"[class.account]\nalgorithm = \"token\"\nrate = \"100B/s\"\nburst = \"40B\"\n[class.c]\nparent = \"account\"\n" + quick + soon, ""},
		"nothing ever":           {"[class.account]\nrate = \"0 messages/s\"\n[class.c]\nparent = \"account\"\n" + quick + soon, ""},
		"of quiet hours":         {"[class.c]\n" + quick + soon + "[[class.c.quiet]]\nfrom = \"00:00\"\nto = \"12:00\"", `"c";q=20;w=1`},
	} {
		t.Run(name, func(t *testing.T) {
			w := through(t, policy.HTTP, c.classes)
			w.send(get + get + get)
			for range 2 { // a refusal comes in its turn
				w.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				w.wait(time.Hour)
			}
			got := string(w.Down.Got)
			refusal := strings.LastIndex(got, "HTTP/1.1 429 ")
			if refusal < 0 {
				t.Fatalf("no refusal: %q", got)
			}
			last := got[refusal:]
			_, named, _ := strings.Cut(last, "\r\nRateLimit-Policy: ")
			named, _, _ = strings.Cut(named, "\r\n")
			if named != c.want {
				t.Errorf("the policy is %q, want %q", named, c.want)
			}
			if _, quota, _ := strings.Cut(named, ";q="); c.want != "" {
				quota, _, _ = strings.Cut(quota, ";")
				if !strings.Contains(last, "\r\nX-RateLimit-Limit: "+quota+"\r\n") {
					t.Errorf("X-RateLimit-Limit is not %s: %q", quota, last)
				}
			}
		})
	}
}
