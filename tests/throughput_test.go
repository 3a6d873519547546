package tests

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/tests/trial"
)

// quickSMSC answers each PDU with success, as fast as it can. It answers all PDUs of one read with
// one write.
func quickSMSC(c *net.TCPConn) {
	in, out := make([]byte, 64<<10), make([]byte, 0, 64<<10)
	for have := 0; ; {
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		used := 0
		out = out[:0]
		for have-used >= 16 {
			size := int(binary.BigEndian.Uint32(in[used:]))
			if have-used < size {
				break
			}
			command, sequence := binary.BigEndian.Uint32(in[used+4:]), binary.BigEndian.Uint32(in[used+12:])
			out = appendPDU(out, command|smppResponse, 0, sequence, "12345678\x00")
			used += size
		}
		have = copy(in, in[used:have])
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// quickHTTP answers each request as fast as it can.
func quickHTTP(c *net.TCPConn) {
	in, out := make([]byte, 64<<10), make([]byte, 0, 64<<10)
	end := []byte("\r\n\r\n")
	for have := 0; ; {
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		out = out[:0]
		used := 0
		for i := bytes.Index(in[:have], end); i >= 0; i = bytes.Index(in[used:have], end) {
			used += i + len(end)
			out = append(out, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"...)
		}
		have = copy(in, in[used:have])
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// submits sends submits over some connections for a time, with up to window of them in flight on
// each. It returns how many were answered per second.
func submits(t *testing.T, addr string, conns, window int, lasts time.Duration) float64 {
	var answered atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	begin := time.Now()
	for range conns {
		e := bind(t, addr, "acme")
		free := make(chan struct{}, window)
		all.Go(func() {
			const batch = 32
			for sequence := uint32(2); !stop.Load(); {
				var p [64 * batch]byte
				b := p[:0]
				for range batch {
					free <- struct{}{}
					b = appendPDU(b, smppSubmit, 0, sequence, "\x00\x01\x01acme\x00\x01\x014477\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05hello")
					sequence++
				}
				if _, err := e.Write(b); err != nil {
					t.Error(err)
					return
				}
			}
			e.CloseWrite()
		})
		all.Go(func() {
			in := make([]byte, 64<<10)
			for have := 0; ; {
				n, err := e.Read(in)
				if err != nil {
					return
				}
				const size = 16 + 9
				have += n
				answered.Add(int64(have / size))
				for range have / size {
					<-free
				}
				have %= size
			}
		})
	}
	time.Sleep(lasts)
	rate := float64(answered.Load()) / time.Since(begin).Seconds()
	stop.Store(true)
	all.Wait()
	return rate
}

// requests runs wrk over some connections for a time, with pipeline requests in flight on each. It
// returns how many were answered per second.
func requests(t *testing.T, addr string, conns, pipeline int, lasts time.Duration) float64 {
	t.Helper()
	script := filepath.Join(t.TempDir(), "pipeline.lua")
	lua := fmt.Sprintf("init = function() r = string.rep(wrk.format('GET', '/'), %d) end\nrequest = function() return r end\n", pipeline)
	if err := os.WriteFile(script, []byte(lua), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool(t, "wrk", "wrk"), "-t1", "-c", strconv.Itoa(conns), "-d", strconv.Itoa(int(lasts/time.Second)), "-s", script, "http://"+addr).CombinedOutput()
	m := regexp.MustCompile(`Requests/sec:\s+([\d.]+)`).FindSubmatch(out)
	if err != nil || m == nil || bytes.Contains(out, []byte("errors")) {
		t.Fatalf("wrk: %v\n%s", err, out)
	}
	rate, _ := strconv.ParseFloat(string(m[1]), 64)
	return rate
}

const fastPolicy = `
[class.all]
rate  = "10000000 messages/s"
queue = "30000 messages"

[listener.l]
listen   = "127.0.0.1:0"
protocol = %q
upstream = %q
class    = "all"
`

// Through a class that never limits, the daemon takes at most so much processor time for a message
// as so many pieces of work take meanwhile: 64 bytes through a pair of sockets (trial.Work).
//
// At full size it must also forward so many messages per second, although source, sink and
// daemon share the processors, and the test notes what passes without the daemon.
func TestThroughput(t *testing.T) {
	lasts := trial.Size(time.Second, 10*time.Second)
	smsc, web := serve(t, quickSMSC), serve(t, quickHTTP)
	d := start(t, plain(), fmt.Sprintf(fastPolicy, "smpp", smsc))
	h := start(t, plain(), fmt.Sprintf(fastPolicy, "http", web))
	for _, c := range []struct {
		what    string
		pieces  float64 // at most, a message
		least   float64 // messages per second, at full size
		measure func(direct bool) float64
		daemon  *program
	}{
		{"submit_sm", 5, 50_000, func(direct bool) float64 {
			return submits(t, either(direct, smsc, d.addr("l")), 4, 500, lasts)
		}, d},
		{"requests, one at a time on each of 50 connections", 14, 20_000, func(direct bool) float64 {
			return requests(t, either(direct, web, h.addr("l")), 50, 1, lasts)
		}, h},
		{"requests, 16 at a time", 9, 30_000, func(direct bool) float64 {
			return requests(t, either(direct, web, h.addr("l")), 50, 16, lasts)
		}, h},
	} {
		trial.Judge(t, 10*time.Millisecond, func() *trial.Miss {
			without := ""
			if trial.Full {
				without = fmt.Sprintf(", %.0f/s without shaper", c.measure(true))
			}
			busy, work := c.daemon.busy(), trial.BeginWork(t)
			through := c.measure(false)
			piece := work.End()
			busy = c.daemon.busy() - busy
			n := through * lasts.Seconds()
			each := busy.Seconds() / n
			pieces := each / piece.Seconds()
			said := fmt.Sprintf("%.0f/s%s; shaper takes %.1f µs of processor time for each, as long as %.1f pieces of work", through, without, 1e6*each, pieces)
			t.Logf("%s: %s", c.what, said)
			trial.Figure(t, c.what, "%s", said)
			sure := 3 * c.pieces
			if n < fewMessages {
				sure = math.Inf(1)
			}
			dear := trial.Most(pieces, c.pieces, sure, "%s: a message takes as long as %.1f pieces of work, want at most %.1f", c.what, pieces, c.pieces)
			if !trial.Full {
				return dear
			}
			return trial.Join(dear, trial.Least(through, c.least, c.least/4, "%s: %.0f per second, want at least %.0f", c.what, through, c.least))
		})
	}
}

// fewMessages are so few in a measurement that what the daemon does besides, such as to accept their
// connections, takes as long.
const fewMessages = 5000

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
