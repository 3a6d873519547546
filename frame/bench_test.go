package frame

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// traffic is a piece of one direction's stream, and the number of messages in it.
type traffic struct {
	name     string
	settings Settings
	piece    []byte
	messages int
	down     bool
}

// browser is the beginning of a head as browsers send it.
const browser = "GET /v1/charges/ch_3OabcdefghijklmnXYZ?expand=customer HTTP/1.1\r\nHost: api.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\nAuthorization: Bearer c2tfdGVzdF80ZUMzOUhxTHlqV0Rhcmp0VDF6ZHA3ZGM\r\n" +
	"Connection: keep-alive\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\r\n"

func traffics() []traffic {
	var submits, refusals, multi, chunks []byte
	for i := range uint32(64) {
		submits = append(submits, submit(i, "447700900000")...)
		refusals = append(refusals, pdu(submitSM|responseBit, esmeThrottled, i, "")...)
		multi = append(multi, submitMany(i, "1", "2", "3")...)
		chunks = append(chunks, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"...)
	}
	bcd := Settings{Protocol: ISO8583, Prefix: BCD2, IncludesPrefix: true}
	return []traffic{
		{"smpp/submit_sm", smppSettings, submits, 64, false},
		{"smpp/submit_multi", smppSettings, multi, 64, false},
		{"smpp/submit_sm_resp", smppSettings, refusals, 64, true},
		{"http/smallest", httpSettings, []byte(strings.Repeat(get, 64)), 64, false},
		{"http/browser", httpSettings, []byte(strings.Repeat(browser, 64)), 64, false},
		{"http/chunked", httpSettings, chunks, 64, false},
		{"http/response", httpSettings, []byte(strings.Repeat(response, 64)), 64, true},
		{"http/429", httpSettings, []byte(strings.Repeat("HTTP/1.1 429 No\r\nRetry-After: Fri, 06 Nov 2026 08:49:37 GMT\r\nContent-Length: 0\r\n\r\n", 64)), 64, true},
		{"iso8583", bcd, []byte(strings.Repeat(string(prefixed(bcd, "0200B220000100000000"+strings.Repeat("7", 200))), 64)), 64, false},
		{"lines", Settings{Protocol: Lines}, []byte(strings.Repeat("a line of some length, as logs have them\n", 64)), 64, false},
	}
}

// carry lets a link scan a piece as a session does: every message is sent, and answered at
// once. It returns the number of messages.
func carry(l Link, tr *traffic) (messages int) {
	s := l.Up()
	if tr.down {
		s = l.Down()
	}
	for p := tr.piece; len(p) > 0; {
		n, ev, err := s.Next(p)
		if err != nil || n == 0 {
			panic(fmt.Sprint(ev, err))
		}
		p = p[n:]
		if ev != Whole && ev != Head {
			continue
		}
		messages++
		if m := s.Message(); m.Kind == Counted && !tr.down {
			l.Sent(m, start)
			pass(l, m)
		}
	}
	return messages
}

var responded = pdu(submitSM|responseBit, 0, 0, "id\x00")

// pass makes the provider answer.
func pass(l Link, m *Message) {
	switch l := l.(type) {
	case *httpLink:
		l.down.Next(answer)
	case *smppLink:
		responded[12], responded[13], responded[14], responded[15] = byte(m.Sequence>>24), byte(m.Sequence>>16), byte(m.Sequence>>8), byte(m.Sequence)
		l.down.Next(responded)
	}
}

func TestMessagesAllocateNothing(t *testing.T) {
	for _, tr := range traffics() {
		l := NewLink(tr.settings)
		carry(l, &tr) // first grows the table to what is in flight
		if got := testing.AllocsPerRun(100, func() {
			if n := carry(l, &tr); n != tr.messages {
				t.Fatalf("%s: %d messages were found", tr.name, n)
			}
		}); got != 0 {
			t.Errorf("%s: %.2f allocations in %d messages", tr.name, got, tr.messages)
		}
	}
}

func TestRefusalsAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 1024)
	r := Refusal{Now: start, Wait: 3 * time.Second, Policy: "acme", Quota: 30, Window: time.Second}
	for _, s := range []Settings{smppSettings, httpSettings} {
		l, m := NewLink(s), &Message{Command: submitSM, Close: true}
		if got := testing.AllocsPerRun(100, func() {
			if len(l.AppendRefusal(buf, m, r)) == 0 {
				t.Fatal("nothing was appended")
			}
		}); got != 0 {
			t.Errorf("%s: a refusal makes %.1f allocations", s.Protocol, got)
		}
	}
}

// A head that comes byte by byte is searched only once.
func TestBytesAllocateNothing(t *testing.T) {
	l := NewLink(httpSettings)
	p := []byte(browser)
	if got := testing.AllocsPerRun(100, func() {
		for i := range p {
			l.Up().Next(p[:i+1])
		}
		l.Sent(l.Up().Message(), start)
		l.Down().Next(answer)
	}); got != 0 {
		t.Errorf("%.1f allocations", got)
	}
}

// In BenchmarkMessage one operation is one message: found, sent and answered, with the answer
// found.
func BenchmarkMessage(b *testing.B) {
	for _, tr := range traffics() {
		b.Run(tr.name, func(b *testing.B) {
			l := NewLink(tr.settings)
			b.ReportAllocs()
			b.SetBytes(int64(len(tr.piece) / tr.messages))
			for n := 0; n < b.N; {
				n += carry(l, &tr)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
		})
	}
}

// BenchmarkBody scans a body that streams through, in reads of 64 KiB.
func BenchmarkBody(b *testing.B) {
	for _, head := range []string{"Content-Length: 999999999999999999", "Transfer-Encoding: chunked"} {
		name, _, _ := strings.Cut(head, ":")
		b.Run(name, func(b *testing.B) {
			l := NewLink(httpSettings)
			l.Up().Next([]byte("POST / HTTP/1.1\r\n" + head + "\r\n\r\n"))
			l.Sent(l.Up().Message(), start)
			piece := []byte(strings.Repeat("ffa\r\n"+strings.Repeat("x", 0xffa)+"\r\n", 16))
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for range b.N {
				if n, ev, err := l.Up().Next(piece); n != len(piece) || ev != Body {
					b.Fatal(n, ev, err)
				}
			}
		})
	}
}

// BenchmarkRefusal writes a 429.
func BenchmarkRefusal(b *testing.B) {
	l, m, buf := NewLink(httpSettings), &Message{}, make([]byte, 0, 1024)
	b.ReportAllocs()
	for range b.N {
		l.AppendRefusal(buf, m, Refusal{Now: start, Wait: time.Second, Policy: "acme", Quota: 30, Window: time.Second})
	}
}
