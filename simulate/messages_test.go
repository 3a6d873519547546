package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// overSMPP returns an SMPP listener with a class and a return class.
func overSMPP(class, back string) string {
	return fmt.Sprintf("[listener.in]\nlisten = \"127.0.0.1:2775\"\nprotocol = \"smpp\"\nupstream = \"10.9.9.9:2775\"\nclass = %q\nreturn_class = %q\n", class, back)
}

// arrivalsOf returns n arrivals of one client at one time, to a listener or back from it.
func arrivalsOf(p *policy.Policy, n int, returns bool) Source {
	client, _ := parseClient("10.0.0.1:5000")
	var arrivals []Arrival
	for range n {
		arrivals = append(arrivals, Arrival{At: Epoch, Conn: connTo(p.Listeners[0], client, 0), Bytes: 100, Returns: returns})
	}
	return all(arrivals)
}

// What a provider delivers cannot be refused. If its class has no room, the provider has to
// wait, and nothing is lost.
func TestDeliveriesWait(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"1000 messages/s\"\n[class.back]\nrate = \"100 messages/s\"\nqueue = \"2 messages\"\n"+overSMPP("c", "back"))
	r, left := simulated(t, p, []Source{arrivalsOf(p, 10, true)}, Options{})
	back, _ := r.Class("back")
	if n := total(back.Refused) + total(back.Dropped); n > 0 || back.Left.Items != 10 {
		t.Errorf("of 10 deliveries, %d leave and %d are lost", back.Left.Items, n)
	}
	if last := left[len(left)-1]; last != 90*time.Millisecond {
		t.Errorf("the last one leaves at %v", last)
	}
}

// What clients submit is refused, because SMPP can refuse it.
func TestSubmitsAreRefused(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"100 messages/s\"\nqueue = \"2 messages\"\n[class.back]\nrate = \"100 messages/s\"\n"+overSMPP("c", "back"))
	r, _ := simulated(t, p, []Source{arrivalsOf(p, 10, false)}, Options{})
	if c, _ := r.Class("c"); c.Left.Items != 3 || c.Refused[stats.QueueFull].Items != 7 {
		t.Errorf("%+v", c)
	}
}

// A message that cannot be refused ends its connection if its class refuses. The client
// connects again.
func TestLinesEndTheirConnection(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"100 messages/s\"\nqueue = \"2 messages\"\noverflow = \"refuse\"\n"+
		"[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = \"lines\"\nupstream = \"discard:\"\nclass = \"c\"\n")
	r, _ := simulated(t, p, []Source{arrivalsOf(p, 4, false)}, Options{})
	if c, _ := r.Class("c"); c.Left.Items != 1 || c.Refused[stats.QueueFull].Items != 1 || c.Dropped[stats.QueueFull].Items != 2 {
		t.Errorf("%+v", c)
	}
}

// The response to a request is bytes, which wait as those of a stream do.
func TestResponsesAreBytes(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"100 messages/s\"\n[class.back]\nrate = \"10KB/s\"\nqueue = \"1KB\"\n"+
		"[listener.l]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\nreturn_class = \"back\"\n")
	r, _ := simulated(t, p, []Source{arrivalsOf(p, 100, true)}, Options{})
	if back, _ := r.Class("back"); back.Left.Bytes != 10_000 || total(back.Refused) > 0 {
		t.Errorf("%+v", back)
	}
}

// A request that is longer than a head has a body. The body waits for a class that counts
// bytes.
func TestBodiesWait(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"100KB/s\"\n[listener.l]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\n")
	r, left := simulated(t, p, loads(t, p, "rate=1 messages/s,size=1MB,count=2"), Options{})
	if c, _ := r.Class("c"); c.Left.Bytes != 2_000_000 || left[1] < time.Second {
		t.Errorf("%+v, at %v", c, left)
	}
}

// A SYN in a capture is no message.
func TestOpeningIsNoMessage(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"100 messages/s\"\n[class.back]\nrate = \"100 messages/s\"\n"+overSMPP("c", "back"))
	file := pcapFile(binary.LittleEndian, 0xa1b2c3d4, 101,
		packet{from: "10.0.0.1:4000", to: "10.9.9.9:2775", protocol: policy.TCP, flags: 0x02},
		packet{from: "10.0.0.1:4000", to: "10.9.9.9:2775", protocol: policy.TCP, flags: 0x18, payload: 40})
	source, err := ReadCapture(p, "a.pcap", bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	r, _ := simulated(t, p, []Source{source}, Options{})
	if c, _ := r.Class("c"); c.Offered.Items != 1 || c.Offered.Bytes != 40 {
		t.Errorf("%+v", c.Offered)
	}
}

// A connection waits for its class with overflow = "wait", whatever it carries: the proxy dials later.
func TestConnectionsOfEachProtocolWait(t *testing.T) {
	for _, protocol := range []string{"tcp", "smpp", "http", "lines", "iso8583"} {
		p := parse(t, "[class.c]\nrate = \"1 connections/s\"\nqueue = \"2 connections\"\noverflow = \"wait\"\n"+
			"[listener.in]\nlisten = \"127.0.0.1:2775\"\nprotocol = \""+protocol+"\"\nupstream = \"10.9.9.9:2775\"\nclass = \"c\"\n")
		client, _ := parseClient("10.0.0.1:5000")
		var arrivals []Arrival
		for range 10 {
			arrivals = append(arrivals, Arrival{At: Epoch, Conn: connTo(p.Listeners[0], client, 0), Bytes: 100, Opens: true})
		}
		r, left := simulated(t, p, []Source{all(arrivals)}, Options{})
		if c, _ := r.Class("c"); c.Left.Items != 10 || left[9] != 9*time.Second {
			t.Errorf("%s: of 10 connections %d leave, %d are refused", protocol, c.Left.Items, total(c.Refused))
		}
	}
}
