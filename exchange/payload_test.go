package exchange

import (
	"strings"
	"testing"

	"shaper/buffer"
	"shaper/frame"
)

// inputOf returns an input that holds a text.
func inputOf(text string) *input {
	in := &input{run: new(run)}
	in.filled(copy(in.room(len(text)), text))
	return in
}

// expectPayload compares the bytes of a payload.
func expectPayload(t *testing.T, p *payload, want string) {
	t.Helper()
	if got := string(p.bytes()); got != want || int(p.n) != len(want) {
		t.Errorf("the payload is %q, of %d bytes, not %q", got, p.n, want)
	}
}

func TestPayloadOutlastsTheInput(t *testing.T) {
	in := inputOf("onetwo")
	p := payload{in: in, n: 3}
	expectPayload(t, &p, "one")
	p.own()
	copyOf := p.buf
	if p.own(); p.buf != copyOf || string(in.bytes()) != "two" {
		t.Errorf("a payload that is out of the input is taken out again: the input holds %q", in.bytes())
	}
	in.drop()
	expectPayload(t, &p, "one")
	if p.release(); p.buf != nil {
		t.Error("a released payload still has its copy")
	}
}

// TestPayloadIsInOnePlace tests that a payload that is released where it came leaves the input, unless the exchange has
// stopped, and so has dropped the input.
func TestPayloadIsInOnePlace(t *testing.T) {
	in := inputOf("onetwo")
	p := payload{in: in, n: 3}
	if p.release(); string(in.bytes()) != "two" {
		t.Errorf("the input holds %q", in.bytes())
	}
	p = payload{in: in, n: 3}
	in.run.stopped = true
	in.drop()
	if p.release(); in.len() != 0 {
		t.Errorf("the input holds %d bytes", in.len())
	}
}

func TestPayloadGrows(t *testing.T) {
	p := payload{in: inputOf("head"), n: 4}
	want := "head"
	p.own()
	for _, piece := range []string{"", "a", strings.Repeat("b", buffer.Min), strings.Repeat("c", 5*buffer.Min)} {
		p.append([]byte(piece))
		want += piece
		expectPayload(t, &p, want)
	}
	p.release()
}

// TestPayloadHolds tests that a message is charged the same before its bytes are copied and afterwards.
func TestPayloadHolds(t *testing.T) {
	for _, n := range []int{1, buffer.Min - 1, buffer.Min, buffer.Min + 1, 1000, 4096, 5000} {
		p := payload{in: inputOf(strings.Repeat("x", n)), n: int32(n)}
		before := p.holds()
		if p.own(); p.holds() != before {
			t.Errorf("%d bytes hold %d, and %d once they are copied", n, before, p.holds())
		}
		p.release()
	}
}

func TestPayloadIsRewritten(t *testing.T) {
	in := inputOf("GET / HTTP/1.1\r\nHost: proxy:80\r\n\r\nrest")
	p := payload{in: in, n: int32(in.len() - len("rest"))}
	origin := frame.NewOrigin("http", "api.example")
	if host, field, kept := p.clientHost(); kept {
		t.Errorf("%q and %q are kept beside the bytes that say them", host, field)
	}
	field := p.bytes()[len("GET / HTTP/1.1\r\nHost: "):][:len("proxy:80")]
	p.rewrite(&origin, field[:len("proxy")], field)
	const want = "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"
	expectPayload(t, &p, want)
	if string(in.bytes()) != "rest" {
		t.Errorf("the input holds %q", in.bytes())
	}
	body := strings.Repeat("b", 5*buffer.Min)
	p.append([]byte(body))
	expectPayload(t, &p, want+body)
	if host, field, kept := p.clientHost(); !kept || string(host) != "proxy" || string(field) != "proxy:80" {
		t.Errorf("the client asked for %q by the field %q (kept: %v)", host, field, kept)
	}
	p.release()
}
