package conn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// sendTrain sends datagrams of one size as one train (UDP_SEGMENT), as fast senders do.
func sendTrain(t testing.TB, c *net.UDPConn, payload []byte, size int) {
	t.Helper()
	control := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	*(*uint16)(unsafe.Pointer(&control[unix.CmsgLen(0)])) = uint16(size)
	if _, _, err := c.WriteMsgUDP(payload, control, nil); err != nil {
		t.Fatal(err)
	}
}

// A train arrives as the datagrams that it consists of, whatever the class does with it, and
// all are counted. So do their echoes, on wildcard sockets, too.
func TestTrainsPass(t *testing.T) {
	for _, c := range []struct {
		rate   string
		more   string
		listen string
	}{
		{fast, "", "127.0.0.1"}, {fast, "", "0.0.0.0"}, {fast, "", "[::]"}, {fast, "", ""},
		{"1MB/s", "", "127.0.0.1"}, // a train is longer than a piece
		{"20000 packets/s", "", "127.0.0.1"},
		{"50000 packets/s", "algorithm = \"token\"\nburst = \"10 packets\"", "127.0.0.1"},
	} {
		t.Run(c.listen+" "+c.rate, func(t *testing.T) {
			port := freeUDP(t)
			r := run(t, class("c", c.rate, c.more)+class("back", fast)+
				listener("l", "udp", policy.Echo, "c", `return_class = "back"`, fmt.Sprintf("listen = \"%s:%s\"", c.listen, port)))
			host := "127.0.0.1"
			if c.listen == "[::]" {
				host = "[::1]"
			}
			client := dialUDP(t, host+":"+port)
			sent, sum := 0, 0
			for _, train := range []struct{ bytes, size int }{{3000, 1000}, {2500, 1000}, {6400, 100}, {64, 1}, {60_000, 1200}, {700, 700}} {
				data := noise(train.bytes)
				sendTrain(t, client, data, train.size)
				for len(data) > 0 {
					n := min(train.size, len(data))
					expectDatagram(t, client, string(data[:n]))
					data = data[n:]
					sent++
				}
				sum += train.bytes
			}
			for name, dir := range map[string]stats.Direction{"c": stats.Upstream, "back": stats.Downstream} {
				v := r.sent(name, dir)
				trial.Await(t, "all are counted", func() bool { return v.Packets.Load() == uint64(sent) && v.Bytes.Load() == uint64(sum) })
			}
		})
	}
}

// Datagrams of all sizes that are read in one batch stay unchanged and in order.
func TestMixedDatagrams(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, udp(upstream.LocalAddr().String(), fast))
	c := dialUDP(t, r.addr("l"))
	for range 50 {
		var want [][]byte
		for range 20 {
			want = append(want, noise([]int{1, 1, 99, 100, 100, 100, 100, 101, 1500, 5000}[rand.IntN(10)])) // all fit into a default receive buffer
		}
		for _, data := range want {
			c.Write(data)
		}
		for i, data := range want {
			if got, _ := receive(t, upstream); got != string(data) {
				t.Fatalf("datagram %d has %d bytes, want %d, or others", i, len(got), len(data))
			}
		}
	}
}

// If the class, or one above it, counts datagrams, those of a train leave one by one, and
// those without room are dropped one by one.
func TestTrainKeepsTheGap(t *testing.T) {
	for name, classes := range map[string]string{
		"class":  class("c", "100 packets/s", `queue = "20 packets"`),
		"parent": class("p", "100 packets/s") + class("c", fast, `queue = "20 packets"`, `parent = "p"`),
	} {
		t.Run(name, func(t *testing.T) { keepsTheGap(t, classes) })
	}
}

func keepsTheGap(t *testing.T, classes string) {
	const rate, room, offered = 100, 20, 50
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, classes+listener("l", "udp", upstream.LocalAddr().String(), "c"))
	start := time.Now()
	sendTrain(t, dialUDP(t, r.addr("l")), bytes.Repeat([]byte("x"), 10*offered), 10)
	for range room + 1 {
		expectDatagram(t, upstream, strings.Repeat("x", 10))
	}
	if took := time.Since(start); took < room*time.Second/rate {
		t.Errorf("%d passed in %v", room+1, took)
	}
	// On a busy machine some leave before the whole train has come.
	if items, n := r.dropped("c", stats.QueueFull); items > offered-room-1 || items < offered-2*room || n != 10*items {
		t.Errorf("%d of %d bytes are dropped", items, n)
	}
}

// If the class counts bytes, a train waits as one. If there is not room for all of it, as many
// datagrams wait as there is room for.
func TestTrainWaits(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	at := upstream.LocalAddr().String()
	r := run(t, class("c", "0B/s", `queue = "70 packets"`)+listener("l", "udp", at, "c"))
	c := dialUDP(t, r.addr("l"))
	class := r.shaper.Class("c")
	for i, want := range []int64{30, 60, 70, 70} {
		sendTrain(t, c, bytes.Repeat([]byte{byte(i)}, 29*1000+500), 1000)
		trial.Await(t, "they wait, or are dropped", func() bool {
			items, _ := r.dropped("c", stats.QueueFull)
			return class.Backlog().Items == want && items == uint64(30*(i+1))-uint64(want)
		})
	}
	start := time.Now()
	r.reload(forwardUDP("d", at, "5000 packets/s")) // where each leaves alone
	for i := range 70 {
		size := 1000
		if i == 29 || i == 59 {
			size = 500
		}
		expectDatagram(t, upstream, string(bytes.Repeat([]byte{byte(i / 30)}, size)))
	}
	if took := time.Since(start); took < 69*time.Second/5000 {
		t.Errorf("70 leave within %v", took)
	}
	if n := class.Backlog().Items; n != 0 {
		t.Errorf("%d wait in the class that is gone", n)
	}
}

func forwardUDP(name, upstream, rate string) string {
	return class(name, rate) + listener("l", "udp", upstream, name)
}

// If the kernel does not segment, for example because checksums are off, each datagram is sent
// alone.
func TestSendApart(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	c := dialUDP(t, upstream.LocalAddr().String())
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
	if err != nil {
		t.Fatal(err)
	}
	w := &udpDirection{Route: sock.Route{Raw: raw}, session: &udpSession{service: &service{}}}
	for range 3 {
		out := getOutgoing()
		w.offer(sock.Train{Payload: []byte("aabbccd"), Size: 2}, out)
		w.offer(sock.Train{Payload: []byte("ee")}, out)
		w.offer(sock.Train{Payload: []byte("f")}, out)
		w.send(out)
		out.release()
		for _, want := range []string{"aa", "bb", "cc", "d", "ee", "f"} {
			expectDatagram(t, upstream, want)
		}
	}
	if n := w.moved.Load(); n != 30 {
		t.Errorf("%d bytes are counted", n)
	}
}

// What the kernel does not accept of a train counts as lost.
func TestTrainIsLost(t *testing.T) {
	sh := shaper.New()
	defer sh.Close()
	w := &udpDirection{Route: sock.Route{Raw: refusing{}}}
	w.init(&udpSession{service: &service{}}, stats.Upstream, sh.NewClass(leakyClass("c", fast)))
	out := getOutgoing()
	w.offer(sock.Train{Payload: []byte("aabbc"), Size: 2}, out)
	w.send(out)
	out.release()
	lost := &w.class.Load().Stats.Dropped[stats.Reset]
	if lost.Items.Load() != 3 || lost.Bytes.Load() != 5 || w.moved.Load() != 0 {
		t.Errorf("%d datagrams of %d bytes are lost, and %d bytes sent", lost.Items.Load(), lost.Bytes.Load(), w.moved.Load())
	}
}

// refusing is a closed socket.
type refusing struct{ syscall.RawConn }

func (refusing) Write(func(uintptr) bool) error { return net.ErrClosed }
