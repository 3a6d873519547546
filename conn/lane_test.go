package conn

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"shaper/tests/trial"
)

// pduHead reads a PDU. It returns its fields, and its sender if it is a submit of submitFrom.
func pduHead(c io.Reader) (command, status, sequence uint32, from string, err error) {
	header := make([]byte, 16)
	if _, err = io.ReadFull(c, header); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(header)-16)
	if _, err = io.ReadFull(c, body); err != nil {
		return
	}
	command, status, sequence = binary.BigEndian.Uint32(header[4:]), binary.BigEndian.Uint32(header[8:]), binary.BigEndian.Uint32(header[12:])
	if command == submit {
		for _, b := range body[3:] {
			if b == 0 {
				break
			}
			from += string(b)
		}
	}
	return
}

// disorderly is a provider that answers late, in any order, and now and then with
// ESME_RTHROTTLED. It also sends enquire_link.
type disorderly struct {
	got   map[string][]uint32 // sequence numbers, by sender
	pings int
}

func (d *disorderly) serve(c net.Conn, r *rand.Rand) error {
	var owed []uint32
	answer := func(most int) error {
		var p string
		for range min(most, len(owed)) {
			i := r.IntN(len(owed))
			status := uint32(0)
			if r.IntN(40) == 0 {
				status = 0x58
			}
			p += pdu(submitResp, status, owed[i], "")
			owed[i] = owed[len(owed)-1]
			owed = owed[:len(owed)-1]
		}
		if r.IntN(5) == 0 {
			p += pdu(enquire, 0, 1_000_000, "")
		}
		_, err := io.WriteString(c, p)
		return err
	}
	type asked struct {
		command, sequence uint32
		from              string
	}
	requests := make(chan asked)
	go func() {
		defer close(requests)
		for {
			command, _, sequence, from, err := pduHead(c)
			if err != nil {
				return
			}
			requests <- asked{command, sequence, from}
		}
	}()
	for {
		if len(owed) >= 50 {
			if err := answer(1 + r.IntN(50)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing comes, perhaps because in_flight is full
			if err := answer(len(owed)); err != nil {
				return err
			}
		case one, open := <-requests:
			switch {
			case !open || one.command == unbind:
				return answer(len(owed))
			case one.command == submit:
				d.got[one.from] = append(d.got[one.from], one.sequence)
				owed = append(owed, one.sequence)
			case one.command == enquireResp:
				d.pings++
			}
		}
	}
}

// Each submit gets one answer, and none overtakes another of its sender. That holds whatever
// happens to the classes, however bytes are cut, and in whatever order answers come.
func TestNothingIsLostOrReordered(t *testing.T) {
	const n = 3000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const pause = `on_throttle = { pause = "2ms", max = "5ms" }`
	policy := func(addr, rate, more string) string {
		return class("account", rate, `in_flight = 200`, pause, more) +
			class("c", "1000 messages/s", `parent = "account"`, `ceil = "`+rate+`"`, `priority = 7`, `queue = "10000 messages"`) +
			class("otp", "1000 messages/s", `parent = "account"`, `ceil = "`+rate+`"`, `priority = 0`, `queue = "10000 messages"`) +
			listener("l", "smpp", addr, "c") + "[[rule]]\nsource_addr = \"otp*\"\nclass = \"otp\"\n"
	}
	addr, conns := listen(t)
	r := run(t, policy(addr, "50000 messages/s", ""))
	client, upstream := r.open(conns)
	client.SetDeadline(time.Time{})
	upstream.SetDeadline(time.Time{})
	provider := &disorderly{got: map[string][]uint32{}}
	var all sync.WaitGroup
	all.Go(func() {
		if err := provider.serve(upstream, rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Error(err)
		}
	})
	want := map[string][]uint32{}
	var stream []byte
	random := rand.New(rand.NewPCG(seed, 2))
	for sequence := range uint32(n) {
		from := []string{"bulk", "otp"}[random.IntN(2)]
		want[from] = append(want[from], sequence)
		stream = append(stream, submitFrom(from, sequence)...)
	}
	var writing sync.Mutex // since the client answers pings between its submits
	all.Go(func() {
		for len(stream) > 0 {
			size := len(submitFrom("otp", 0))
			if random.IntN(2) == 0 {
				size = random.IntN(2000)
			}
			writing.Lock()
			piece := wholePDUs(stream, size)
			cut := random.IntN(len(piece) + 1)
			client.Write(piece[:cut])
			client.Write(piece[cut:])
			writing.Unlock()
			stream = stream[len(piece):]
		}
	})
	all.Go(func() {
		for i := range 20 {
			r.reload(policy(addr, []string{"50000 messages/s", "20000 messages/s"}[i%3/2], []string{"", "adapt = true"}[i%2]))
		}
		// One class remains, with all that waits.
		r.reload(class("c", "20000 messages/s", `queue = "10000 messages"`, pause) + listener("l", "smpp", addr, "c"))
	})
	answered := map[uint32]int{}
	for len(answered) < n {
		client.SetReadDeadline(time.Now().Add(patience))
		command, _, sequence, _, err := pduHead(client)
		if err != nil {
			t.Fatalf("%d of %d are answered; %v; %+v", len(answered), n, err, r.Sessions())
		}
		switch command {
		case submitResp:
			if answered[sequence]++; answered[sequence] > 1 {
				t.Fatalf("%d is answered twice", sequence)
			}
		case enquire:
			writing.Lock()
			io.WriteString(client, pdu(enquireResp, 0, sequence, ""))
			writing.Unlock()
		}
	}
	send(t, client, pdu(unbind, 0, n, ""))
	all.Wait()
	for from, sequences := range want {
		if fmt.Sprint(provider.got[from]) != fmt.Sprint(sequences) {
			t.Errorf("of %s the provider gets %d, not the %d in their order", from, len(provider.got[from]), len(sequences))
		}
	}
	trial.Await(t, "nothing is in flight", func() bool { return r.shaper.Class("c").InFlight() == 0 })
}

// wholePDUs returns the PDUs that begin in the first n bytes, at least one.
func wholePDUs(p []byte, n int) []byte {
	end := 0
	for end < len(p) && (end < n || end == 0) {
		end += int(binary.BigEndian.Uint32(p[end:]))
	}
	return p[:end]
}
