package exchange_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/policy"
	"shaper/tests/trial"
)

// FuzzExchange lets a client and a provider send anything, cut anywhere, while time passes,
// receivers stall and policies change.
func FuzzExchange(f *testing.F) {
	for n := range uint64(8) {
		x := rand.New(rand.NewPCG(1, n))
		texts, script := randomStreams(x, protocols[n%4])
		f.Add(byte(n), []byte(strings.Join(texts[0], "")), []byte(strings.Join(texts[1], "")), script)
	}
	f.Fuzz(func(t *testing.T, which byte, up, down, script []byte) {
		if len(up)+len(down)+len(script) < 1<<14 {
			play(t, which, up, down, script, [2][]string{})
		}
	})
}

// TestRandomSchedules plays valid messages of clients and providers, by random scripts.
func TestRandomSchedules(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	n := trial.Size(1500, 100_000)
	if trial.Raced { // it has nothing to find in one goroutine
		n = 100
	}
	for n := range n {
		x := rand.New(rand.NewPCG(seed, uint64(n)))
		which := byte(x.IntN(256))
		texts, script := randomStreams(x, protocols[which%4])
		up, down := []byte(strings.Join(texts[0], "")), []byte(strings.Join(texts[1], ""))
		if x.IntN(10) == 0 && len(up)+len(down) > 0 { // one byte is wrong
			texts = [2][]string{}
			if at := x.IntN(len(up) + len(down)); at < len(up) {
				up[at] = byte(x.IntN(256))
			} else {
				down[at-len(up)] = byte(x.IntN(256))
			}
		}
		play(t, which, up, down, script, texts)
	}
}

// play plays a script on a connection. which selects the protocol and the policy. texts are
// the messages of both streams, if they are known.
func play(t *testing.T, which byte, up, down, script []byte, texts [2][]string) {
	t.Helper()
	protocol := protocols[which%4]
	keys := [...]string{short, wait, fail}[which/4%3]
	keyed := keys + perOf(protocol)
	begins, later := keys, keys
	switch which / 12 % 4 {
	case 1:
		begins, later = keyed, keyed
	case 2:
		later = keyed
	case 3:
		begins = keyed
	}
	if which/48%2 > 0 {
		begins += quietOf(protocol)
	}
	if which/96%2 > 0 { // some cost more than others
		begins += "cost = { bytes = 4000 }\n"
	}
	s := newSchedule(t, protocol, begins, up, down)
	s.texts, s.keyed = texts, which/12%4 > 0 || which/48%2 > 0
	streams := [...]*exchangetest.Stream{&s.Up, &s.Down}
	for i := 0; i+1 < len(script) && !s.Over; i += 2 {
		what, much := script[i], int(script[i+1])
		stream := streams[what/16%2]
		switch what % 16 {
		case 0, 1, 2, 3, 4:
			s.send(int(what/16%2), much*(1+much/32))
		case 5, 6, 7:
			s.pass(time.Duration(much) * time.Millisecond)
		case 8:
			stream.Most = much
		case 9:
			stream.Room = much * (much / 64)
			s.drive()
		case 10, 11:
			stream.Room = -1
			s.drive()
		case 12:
			s.reload([...]string{"d", "c"}[s.reloads%2], [...]string{later, begins}[s.reloads%2])
		case 13:
			s.pass(time.Duration(much) * time.Second)
			s.tend()
		case 14:
			if s.send(int(what/16%2), much*much); much < 100 && stream.Ends == nil {
				stream.Ends = io.EOF
				s.drive()
			}
		case 15:
			if much < 10 && stream.Ends == nil {
				stream.Ends = exchange.ErrCut
				s.drive()
			}
		}
	}
	s.end()
}

// randomStreams returns the messages of a client and its provider, and a script.
func randomStreams(x *rand.Rand, protocol policy.Protocol) (texts [2][]string, script []byte) {
	for n := range uint32(x.IntN(40)) {
		texts[0] = append(texts[0], randomUp(x, protocol, n))
		texts[1] = append(texts[1], randomDown(x, protocol, n))
	}
	for range 2 * x.IntN(100) {
		script = append(script, byte(x.IntN(256)))
	}
	return texts, script
}

func pdu(command, status, sequence uint32, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	for _, field := range [...]uint32{command, status, sequence} {
		b = binary.BigEndian.AppendUint32(b, field)
	}
	return string(b) + body
}

func prefixed(text string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(text)))) + text
}

func one(x *rand.Rand, of ...string) string { return of[x.IntN(len(of))] }

// query is query_sm, which must not overtake earlier messages.
const query = 3

// padding is sometimes so long that a stalled receiver has no room for another message.
func padding(x *rand.Rand, of string) string {
	if x.IntN(20) == 0 {
		return strings.Repeat(of, 7000)
	}
	return strings.Repeat(of, x.IntN(3)*x.IntN(100))
}

func randomUp(x *rand.Rand, protocol policy.Protocol, n uint32) string {
	pad := padding(x, "x")
	switch protocol {
	case policy.SMPP:
		to := one(x, "1", "2", "3")
		submit := func(from string) string { return pdu(4, 0, n, "\x00\x00\x00"+from+"\x00\x01\x01"+to+"\x00"+pad) }
		return one(x, submit("otp"), submit("bulk"), submit("bulk"), pdu(0x15, 0, n, ""), pdu(query, 0, n, "id"), pdu(5, 0, n, pad))
	case policy.HTTP:
		post := fmt.Sprintf("POST /bulk/%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", n, len(pad), pad)
		chunked := fmt.Sprintf("POST /otp/%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%sy\r\n0\r\n\r\n", n, len(pad)+1, pad)
		upgrade := "GET /u HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
		switch x.IntN(30) {
		case 0:
			return one(x, upgrade, "GET / HTTP/1.0\r\n\r\n")
		case 1, 2, 3:
			return "\r\n"
		}
		get := func(path string) string { return fmt.Sprintf("GET %s/%d HTTP/1.1\r\nHost: x\r\n\r\n", path, n) }
		return one(x, post, chunked, get("/otp"), get("/bulk"))
	case policy.ISO8583:
		return prefixed(one(x, "0200", "0800", "0210", "") + pad)
	}
	return one(x, fmt.Sprintln(pad, n), "\n", "\r\n")
}

func randomDown(x *rand.Rand, protocol policy.Protocol, n uint32) string {
	pad := padding(x, "y")
	switch protocol {
	case policy.SMPP:
		return one(x, pdu(1<<31|4, 0, n, "id\x00"), pdu(1<<31|4, 0, n, "id\x00"), pdu(1<<31|4, 0x58, n, ""), pdu(5, 0, n, pad), pdu(0x15, 0, n, ""), pdu(6, 0, n, ""))
	case policy.HTTP:
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nX: %d\r\nContent-Length: %d\r\n\r\n%s", n, len(pad), pad)
		return one(x, answer, answer, answer, "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nyy\r\n0\r\n\r\n")
	}
	return randomUp(x, protocol, n)
}
