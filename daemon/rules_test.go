package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"shaper/policy"
	"shaper/simulate"
	"shaper/stats"
	"shaper/tests/trial"
)

// Live traffic, a policy in the shadow, a simulation, and explain with and without a daemon put
// a message into the same class. The test compares them with random policies and messages.
func TestAllReadTheSameRules(t *testing.T) {
	const policies, messages = 12, 12
	x := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for n := range policies {
		protocol := []policy.Protocol{policy.HTTP, policy.SMPP}[n%2]
		rules := randomRules(x, protocol)
		t.Run(fmt.Sprintf("%s %d", protocol, n), func(t *testing.T) {
			live := ruled(t, protocol, "1000000 messages/s", rules)
			if _, err := live.StartShadow(t.Context(), PolicyText{File: "next.toml", Text: ruledText(protocol, "0 messages/s", rules)}); err != nil {
				t.Fatal(err)
			}
			conn := live.connect(t)
			systemID := pick(x, "acme", "acme2", "else")
			if protocol == policy.SMPP {
				conn.Write(smppPDU(0x09, 1, systemID+"\x00\x00\x00\x34\x00\x00\x00"))
			}
			for i := range messages {
				said := randomMessage(x, protocol, systemID)
				want := decided(t, live, rules, said)
				seen[want] = true
				if protocol == policy.HTTP {
					conn = live.connect(t) // in the shadow, a message waits for those before it on its connection
				}
				before, would := live.messagesOf(t), live.wouldWait(t)
				conn.Write(wire(said, uint32(i+2)))
				trial.Await(t, fmt.Sprintf("class %s sends %+v", want, said), func() bool { return live.messagesOf(t)[want] == before[want]+1 })
				if got := live.wouldWait(t); got[want] != would[want]+1 {
					t.Errorf("%+v: in the shadow %v would wait, and %v before; want one more in %s", said, got, would, want)
				}
			}
		})
	}
	if len(seen) < 3 {
		t.Errorf("the messages reached only the classes %v", seen)
	}
}

// connect connects to the listener until the end of the test.
func (p *process) connect(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.address("l"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ruled starts a daemon whose policy has these rules.
func ruled(t *testing.T, protocol policy.Protocol, rate, rules string) *process {
	return begin(t, "[daemon]\ncontrol = \"c.sock\"\nhttp = \"127.0.0.1:0\"\n"+ruledText(protocol, rate, rules))
}

func ruledText(protocol policy.Protocol, rate, rules string) string {
	text := ""
	for _, name := range []string{"a", "b", "c", "own"} {
		text += fmt.Sprintf("[class.%s]\nrate = %q\n", name, rate)
	}
	return text + fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = \"discard:\"\nclass = \"own\"\n", protocol) + rules
}

func pick(x *rand.Rand, of ...string) string { return of[x.IntN(len(of))] }

func randomRules(x *rand.Rand, protocol policy.Protocol) (text string) {
	keys := map[policy.Protocol][][]string{
		policy.HTTP: {{"path", "/a*", "*b", "*a*", "/a/b", "*"}, {"method", "GET", "P*", "POST"}, {"host", "h.example", "*.EXAMPLE", "other"}},
		policy.SMPP: {{"system_id", "acme", "acme*", "*"}, {"source_addr", "OTP*", "OTP1", "*1", "*"}},
	}[protocol]
	for range x.IntN(7) {
		text += fmt.Sprintf("[[rule]]\nclass = %q\n", pick(x, "a", "b", "c"))
		if x.IntN(4) == 0 {
			text += fmt.Sprintf("source = %q\n", pick(x, "127.0.0.0/8", "10.0.0.0/8", "127.0.0.1"))
		}
		for _, key := range keys {
			if x.IntN(2) == 0 {
				text += fmt.Sprintf("%s = [%q, %q]\n", key[0], pick(x, key[1:]...), pick(x, key[1:]...))
			}
		}
	}
	return text
}

func randomMessage(x *rand.Rand, protocol policy.Protocol, systemID string) policy.Fields {
	if protocol == policy.SMPP {
		return policy.Fields{SystemID: systemID, SourceAddr: pick(x, "OTP1", "OTP2", "x1", "x")}
	}
	return policy.Fields{Path: pick(x, "/a/b", "/a", "/b", "/c"), Method: pick(x, "GET", "POST", "PUT"), Host: pick(x, "h.example", "H.Example", "other")}
}

// decided returns the class that the daemon explains, and checks that explain without a daemon
// and a simulation agree.
func decided(t *testing.T, live *process, rules string, said policy.Fields) string {
	t.Helper()
	ask := ExplainRequest{Source: "127.0.0.1", Fields: said}
	all, err := live.Explain(t.Context(), ask)
	if err != nil || len(all) != 1 {
		t.Fatalf("explain: %v, %v", all, err)
	}
	p, _, err := policy.Load(live.path)
	if err != nil {
		t.Fatal(err)
	}
	offline, err := Explain(context.Background(), p, ask)
	if err != nil || offline[0].Class != all[0].Class || offline[0].Rule != all[0].Rule {
		t.Errorf("%+v: without a daemon %+v, %v; with one %+v", said, offline, err, all)
	}
	for _, skipped := range all[0].Skipped {
		if skipped.Why == "" {
			t.Errorf("%+v: rule %d matches, and is skipped:\n%s", said, skipped.Rule, rules)
		}
	}
	once := false
	source := simulate.Source{Next: func(a *simulate.Arrival) error {
		if once {
			return io.EOF
		}
		once = true
		*a = simulate.Arrival{At: simulate.Epoch, Conn: all[0].Conn, Message: said, Bytes: 100, Opens: true}
		return nil
	}}
	report, err := simulate.Run(p, []simulate.Source{source}, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := report.Class(all[0].Class); c.Offered.Items != 1 {
		t.Errorf("%+v: explain says class %s, and the simulation puts it elsewhere", said, all[0].Class)
	}
	return all[0].Class
}

// messagesOf returns how many messages each class has sent.
func (p *process) messagesOf(t *testing.T) map[string]uint64 {
	t.Helper()
	all, err := p.Classes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]uint64{}
	for _, c := range all {
		n[c.Name] = c.Sent[stats.Upstream].Messages
	}
	return n
}

// wouldWait returns how many messages would wait in each class of the policy in the shadow.
func (p *process) wouldWait(t *testing.T) map[string]uint64 {
	t.Helper()
	s, err := p.Client.Shadow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]uint64{}
	for _, c := range s.Classes {
		n[c.Name] = c.WouldDelay
	}
	return n
}

// wire returns the bytes of a message.
func wire(said policy.Fields, sequence uint32) []byte {
	if said.SystemID != "" {
		return smppPDU(0x04, sequence, "\x00\x00\x00"+said.SourceAddr+"\x00\x00\x00123\x00"+strings.Repeat("\x00", 8)+"\x02hi")
	}
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", said.Method, said.Path, said.Host)
}

func smppPDU(command, sequence uint32, body string) []byte {
	var b bytes.Buffer
	for _, field := range []uint32{uint32(16 + len(body)), command, 0, sequence} {
		binary.Write(&b, binary.BigEndian, field)
	}
	b.WriteString(body)
	return b.Bytes()
}
