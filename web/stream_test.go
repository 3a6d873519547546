package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a net.Listener whose connections are pipes in memory, which synctest understands.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// served runs a test with a dashboard that is served, on a clock that moves when all wait.
func served(t *testing.T, source *fake, test func(t *testing.T, d *Dashboard, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		d, began := New(source), time.Now()
		d.worked = func() time.Duration { return time.Since(began) } // work takes as long as it sleeps
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: d, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute}
		go server.Serve(p)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); d.Run(ctx) }()
		synctest.Wait() // for the first sample
		test(t, d, p)
		stop()
		<-ended
		server.Close()
	})
}

// look opens a view, and returns its events. The browser reads nothing more until the test does.
func (p *pipes) look(t *testing.T, view string) (events *bufio.Reader, status string, hang func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	p.dialled <- theirs
	io.WriteString(ours, "GET /events/"+view+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(ours), nil)
	if err != nil {
		t.Fatal(err)
	}
	return bufio.NewReaderSize(answer.Body, 16), answer.Status, func() { ours.Close() }
}

// eventOf returns the next event of a stream.
func eventOf(t *testing.T, events *bufio.Reader) string {
	t.Helper()
	text, err := events.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if end, _ := events.ReadString('\n'); end != "\n" {
		t.Fatalf("an event ends with %q", end)
	}
	return text
}

// A stream sends an event a second, longer than the server allows requests and answers to take.
func TestStream(t *testing.T) {
	served(t, &fake{}, func(t *testing.T, d *Dashboard, p *pipes) {
		events, status, hang := p.look(t, "class/otp")
		defer hang()
		if status != "200 OK" {
			t.Fatal(status)
		}
		began := time.Now()
		for range 121 {
			if text := eventOf(t, events); !strings.Contains(text, `"summary":"summary","view":{"class":"all of otp","why":"it waits","curves":{"unit":"messages"`) {
				t.Fatal(text)
			}
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("121 events took %v", took)
		}
	})
}

// All who look at a view share its events. Nothing is computed when nobody looks.
func TestStreamsShare(t *testing.T) {
	source := &fake{}
	served(t, source, func(t *testing.T, d *Dashboard, p *pipes) {
		for range 4 {
			events, _, hang := p.look(t, "classes")
			defer hang()
			go io.Copy(io.Discard, events)
		}
		synctest.Wait()
		before := source.asked.Load()
		time.Sleep(9500 * time.Millisecond) // no sample of the history is due
		if n := source.asked.Load() - before; n != 9 {
			t.Errorf("four streams have asked %d times in 9.5 s", n)
		}
	})
	served(t, source, func(t *testing.T, d *Dashboard, p *pipes) {
		_, _, hang := p.look(t, "classes")
		hang()
		synctest.Wait()
		before, sampled := source.asked.Load(), source.sampled.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n, samples := source.asked.Load()-before, source.sampled.Load()-sampled; n != 0 || samples != 360 {
			t.Errorf("in an hour nobody has looked, and the daemon was asked for %d views and %d samples", n, samples)
		}
		if d.screens.streams != 0 || len(d.screens.open) != 0 {
			t.Errorf("%d streams, %d views are open", d.screens.streams, len(d.screens.open))
		}
	})
}

func TestTooManyStreams(t *testing.T) {
	served(t, &fake{}, func(t *testing.T, d *Dashboard, p *pipes) {
		var last func()
		for range mostStreams {
			_, status, hang := p.look(t, "sessions")
			if status != "200 OK" {
				t.Fatal(status)
			}
			defer hang()
			last = hang
		}
		_, status, hang := p.look(t, "classes")
		hang()
		if status != "503 Service Unavailable" {
			t.Errorf("one more got %s", status)
		}
		last()
		synctest.Wait()
		_, status, hang = p.look(t, "classes")
		hang()
		if status != "200 OK" {
			t.Errorf("when one had gone, the next got %s", status)
		}
	})
}

// What nobody reads holds no place: the answer to a HEAD, one to a request whose body does not come,
// and what the page of another site asks for.
func TestWhatNobodyReads(t *testing.T) {
	for request, want := range map[string]int{
		"HEAD /events/classes HTTP/1.1\r\nHost: localhost\r\n\r\n":                               http.StatusMethodNotAllowed,
		"GET /events/classes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n":           http.StatusBadRequest,
		"GET /events/classes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n":  http.StatusBadRequest,
		"GET /events/classes HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n":  http.StatusForbidden,
		"GET /events/classes HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-site\r\n\r\n":   http.StatusForbidden,
		"GET /events/classes HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\r\n": http.StatusOK,
		"GET /events/classes HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: none\r\n\r\n":        http.StatusOK,
	} {
		served(t, &fake{}, func(t *testing.T, d *Dashboard, p *pipes) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			p.dialled <- theirs
			io.WriteString(ours, request)
			answer, err := http.ReadResponse(bufio.NewReader(ours), &http.Request{Method: request[:strings.Index(request, " ")]})
			if err != nil {
				t.Fatalf("%q: %v", request, err)
			}
			if answer.StatusCode != want {
				t.Errorf("%q: %s", request, answer.Status)
			}
			if open := d.screens.streams; (open == 1) != (want == http.StatusOK) {
				t.Errorf("%q: %d streams are open", request, open)
			}
		})
	}
}

// A browser that does not read is dropped, and holds nobody else up.
func TestSlowBrowser(t *testing.T) {
	served(t, &fake{body: huge}, func(t *testing.T, d *Dashboard, p *pipes) {
		slow, _, hang := p.look(t, "sessions")
		defer hang()
		fast, _, hang2 := p.look(t, "sessions")
		defer hang2()
		began := time.Now()
		for range 10 {
			eventOf(t, fast)
		}
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("ten events took %v", took)
		}
		if n := d.screens.streams; n != 1 {
			t.Errorf("%d streams are open", n)
		}
		if _, err := io.Copy(io.Discard, slow); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the slow one ended with %v", err)
		}
	})
}

func TestNoSuchView(t *testing.T) {
	served(t, &fake{}, func(t *testing.T, d *Dashboard, p *pipes) {
		for _, view := range []string{"none", "", "policy", "sessions/1"} {
			_, status, hang := p.look(t, view)
			if hang(); status != "404 Not Found" {
				t.Errorf("%q: %s", view, status)
			}
		}
		events, _, hang := p.look(t, "class/none")
		defer hang()
		if text := eventOf(t, events); !strings.Contains(text, `"view":{"class":null,`) {
			t.Error(text)
		}
	})
}

// What takes long comes seldom: a view takes at most a quarter of a percent of a processor.
func TestEffort(t *testing.T) {
	served(t, &fake{work: func() { time.Sleep(20 * time.Millisecond) }}, func(t *testing.T, d *Dashboard, p *pipes) {
		events, _, hang := p.look(t, "sessions")
		defer hang()
		eventOf(t, events)
		began := time.Now()
		eventOf(t, events)
		if took := time.Since(began); took != 8*time.Second+20*time.Millisecond {
			t.Errorf("the next event came after %v", took)
		}
	})
	served(t, &fake{work: func() { time.Sleep(time.Minute) }}, func(t *testing.T, d *Dashboard, p *pipes) {
		events, _, hang := p.look(t, "sessions")
		defer hang()
		eventOf(t, events)
		began := time.Now()
		eventOf(t, events)
		if took := time.Since(began); took != longestWait+time.Minute {
			t.Errorf("what takes a minute came again after %v", took)
		}
	})
	for took, want := range map[time.Duration]time.Duration{0: time.Second, 2500 * time.Microsecond: time.Second, 5 * time.Millisecond: 2 * time.Second, time.Second: 400 * time.Second} {
		if got := pause(took, streamPause); got != want {
			t.Errorf("after %v it pauses %v, not %v", took, got, want)
		}
	}
}

// A view that waits for others, such as the store of a fleet, takes no processor meanwhile: it comes as often as one that does not.
func TestWaitingIsNoEffort(t *testing.T) {
	served(t, &fake{work: func() { time.Sleep(20 * time.Millisecond) }}, func(t *testing.T, d *Dashboard, p *pipes) {
		d.worked = threadTime
		events, _, hang := p.look(t, "sessions")
		defer hang()
		eventOf(t, events)
		began := time.Now()
		eventOf(t, events)
		if took := time.Since(began); took > longestWait/2 { // 1.02 s, unless the machine needs 12 ms of work for a view
			t.Errorf("the next event came after %v", took)
		}
	})
}

// The end of its server's context ends the streams.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(&fake{})
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		server := &http.Server{Handler: d, BaseContext: func(net.Listener) context.Context { return ctx }}
		go server.Serve(p)
		events, _, hang := p.look(t, "classes")
		defer hang()
		eventOf(t, events)
		began := time.Now()
		stop()
		if _, err := io.Copy(io.Discard, events); err != nil {
			t.Error(err)
		}
		if err := server.Shutdown(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v, %v after the end", err, time.Since(began))
		}
	})
}
