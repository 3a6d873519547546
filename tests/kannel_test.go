package tests

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// kannel is a running Kannel, an SMS gateway: a bearerbox, which binds to a provider, and an
// smsbox, which takes messages over HTTP.
type kannel struct {
	t    *testing.T
	send string // URL that takes a message
}

const kannelConf = `
group = core
admin-port = %s
admin-interface = 127.0.0.1
admin-password = secret
smsbox-port = %s
smsbox-interface = 127.0.0.1
box-allow-ip = 127.0.0.1
log-file = "%s/bearerbox.log"
log-level = 1

group = smsc
smsc = smpp
smsc-id = acme
host = %s
port = %s
transceiver-mode = true
smsc-username = acme
smsc-password = secret
system-type = ""
throughput = 20
max-pending-submits = 50
enquire-link-interval = 1

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = %s
sendsms-interface = 127.0.0.1
log-file = "%s/smsbox.log"
log-level = 1

group = sendsms-user
username = u
password = p
max-messages = 10
concatenation = true
`

// newKannel runs Kannel with throughput = 20, bound to smsc, until the test ends.
func newKannel(t *testing.T, smsc string) *kannel {
	t.Helper()
	bearerbox, smsbox := sbin(t, "bearerbox", "kannel"), sbin(t, "smsbox", "kannel")
	dir := t.TempDir()
	host, port, _ := net.SplitHostPort(smsc)
	admin, boxes, sendsms := freePort(t), freePort(t), freePort(t)
	conf := filepath.Join(dir, "kannel.conf")
	text := fmt.Sprintf(kannelConf, admin, boxes, dir, host, port, sendsms, dir)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	runBox(t, dir, bearerbox, conf)
	trial.Await(t, "bearerbox listens", func() bool { return listens(boxes) })
	runBox(t, dir, smsbox, conf)
	trial.Await(t, "smsbox listens", func() bool { return listens(sendsms) })
	k := &kannel{t, "http://127.0.0.1:" + sendsms + "/cgi-bin/sendsms?username=u&password=p&"}
	status := "http://127.0.0.1:" + admin + "/status.txt?password=secret"
	trial.Await(t, "Kannel is bound", func() bool {
		text, code := fetch(t, status)
		return code == http.StatusOK && strings.Contains(text, "(online") && strings.Contains(text, "smsbox:")
	})
	return k
}

// sbin is like tool, but also looks in /usr/sbin.
func sbin(t *testing.T, name, debianPackage string) string {
	t.Helper()
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		return path
	}
	return tool(t, name, debianPackage)
}

// runBox runs a part of Kannel until the test ends.
func runBox(t *testing.T, dir, box, conf string) {
	t.Helper()
	cmd := exec.Command(box, conf)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// After SIGTERM, Kannel may wait for messages to be delivered, so kill it after a second.
		cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		cmd.Wait()
	})
}

// sms sends a message through Kannel.
func (k *kannel) sms(from, text string) {
	k.t.Helper()
	k.smsTo("447700900123", from, text)
}

func (k *kannel) smsTo(to, from, text string) {
	k.t.Helper()
	query := url.Values{"from": {from}, "to": {to}, "text": {text}}
	if answer, code := fetch(k.t, k.send+query.Encode()); code != http.StatusAccepted {
		k.t.Fatalf("smsbox answers %d: %s", code, answer)
	}
}

// README.md shows kannelClass.
const kannelClass = `
[class.acme]
rate     = "20 messages/s"
headroom = "2%%"
`

const kannelPolicy = kannelClass + `
[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "acme"
`

// TestKannel is the example of README.md. A provider accepts 20 messages a second, at least 50 ms
// apart. Kannel, with throughput = 20, sends to it through shaper. Meanwhile another Kannel sends
// directly to another such provider, which refuses many of its messages.
func TestKannel(t *testing.T) {
	t.Parallel()
	alone := &spacing{gap: 50 * time.Millisecond}
	n := trial.Size(40, 200)
	newKannel(t, spacedProvider(t, alone).addr).campaign(n)
	trial.Judge(t, 5*time.Millisecond, func() *trial.Miss { return kannelThroughShaper(t, alone, n) })
}

// campaign sends n messages, and one that takes three PDUs.
func (k *kannel) campaign(n int) {
	for i := range n {
		k.sms("acme", fmt.Sprintf("message %d", i))
	}
	k.sms("acme", strings.Repeat("0123456789", 40))
}

// kannelThroughShaper runs a campaign through shaper, and checks that the provider refuses nothing
// and that enquire_link waits for no submit. Alone is the rule of the provider without shaper.
func kannelThroughShaper(t *testing.T, alone *spacing, n int) *trial.Miss {
	rule := &spacing{gap: 50 * time.Millisecond}
	d := start(t, plain(), fmt.Sprintf(kannelPolicy, spacedProvider(t, rule).addr))
	k := newKannel(t, d.addr("gateway"))
	other := bind(t, d.addr("gateway"), "acme")
	const own = 40
	all := n + 3 + own
	k.campaign(n)
	other.submit("acme", own) // they wait on the same bind as the enquire_links
	var waits []time.Duration
	overtook := 0 // enquire_links that were sent while submits of the same bind waited
	for accepted, refused := 0, 0; accepted+refused < all; accepted, refused, _ = rule.score() {
		if other.answered < own {
			overtook++
		}
		waits = append(waits, other.enquire())
		time.Sleep(50 * time.Millisecond)
	}
	slices.Sort(waits)
	slow := waits[len(waits)*99/100-1] // one may be late on a busy machine
	accepted, refused, took := rule.score()
	t.Logf("through shaper: of %d PDUs, the provider accepted %d in %.2f s, with gaps of at least %v, and throttled %d; "+
		"99 of 100 enquire_links were answered within %v, %d of them while submits of the same bind waited", all, accepted, took.Seconds(), rule.closest(), refused, slow, overtook)
	if n := d.class("acme").Sent["upstream"].Messages; int(n) != all {
		t.Errorf("shaper counts %d messages, want %d", n, all)
	}
	if overtook == 0 {
		t.Error("no enquire_link was sent while submits of the same bind waited")
	}
	most := time.Duration(all) * rule.gap * 107 / 100 // headroom takes 2 %
	rule.check(t, all)
	wrong := trial.Join(
		trial.Most(took, most, 3*most, "%d PDUs came within %v, want %v", all, took, most),
		trial.Most(slow, 5*time.Millisecond, time.Second, "enquire_link is answered after %v, want at most 5 ms", slow),
		trial.Least(overtook, 10, 1, "%d enquire_links were sent while submits of the same bind waited, want 10", overtook))
	accepted, refused, took = alone.score()
	t.Logf("without shaper: accepted %d in %.2f s, throttled %d", accepted, took.Seconds(), refused)
	return trial.Join(wrong,
		trial.Most(accepted, min(all/2, refused), all, "without shaper, the provider throttles %d and accepts %d: too little to show anything", refused, accepted))
}

// Two gateways, each with its own bind, together keep the provider's limit.
func TestKannelsShareAnAccount(t *testing.T) {
	t.Parallel()
	rule := &spacing{gap: 50 * time.Millisecond}
	d := start(t, plain(), fmt.Sprintf(kannelPolicy, spacedProvider(t, rule).addr))
	kannels := []*kannel{newKannel(t, d.addr("gateway")), newKannel(t, d.addr("gateway"))}
	var all sync.WaitGroup
	for _, k := range kannels {
		all.Go(func() { k.campaign(20) })
	}
	all.Wait()
	const want = 2 * (20 + 3)
	trial.Await(t, "all have arrived", func() bool { a, r, _ := rule.score(); return a+r >= want })
	accepted, refused, took := rule.score()
	t.Logf("of %d PDUs of two Kannels, the provider accepted %d in %.2f s, and throttled %d", want, accepted, took.Seconds(), refused)
	rule.check(t, want)
}

// A passcode waits for at most one gap, however many messages of the same account and bind wait.
func TestPasscodesGoFirst(t *testing.T) {
	t.Parallel()
	const gap = 50 * time.Millisecond
	trial.Judge(t, 5*time.Millisecond, func() *trial.Miss {
		rule := &spacing{gap: gap}
		p := spacedProvider(t, rule)
		d := start(t, plain(), fmt.Sprintf(`
[class.acme]
rate     = "20 messages/s"
headroom = "2%%"

[class.bulk]
parent   = "acme"
rate     = "10 messages/s"
ceil     = "20 messages/s"
priority = 7
queue    = "2000 messages"

[class.otp]
parent   = "acme"
rate     = "10 messages/s"
ceil     = "20 messages/s"
priority = 0

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "bulk"

[[rule]]
source_addr = "otp*"
class       = "otp"
`, p.addr))
		e := bind(t, d.addr("gateway"), "acme")
		e.submit("bulk", 1000)
		trial.Await(t, "bulk waits", func() bool { return d.class("bulk").Backlog >= 900 })
		slowest := time.Duration(0)
		for range trial.Size(12, 50) {
			sent := time.Now()
			sequence := e.submit("otp1", 1)
			if status := e.answerTo(sequence); status != 0 {
				t.Fatalf("a passcode is answered with status %#x; the shortest gap was %v", status, rule.closest())
			}
			slowest = max(slowest, arrivalOf(p, "otp1", sequence).Sub(sent))
			time.Sleep(113 * time.Millisecond) // not a multiple of the gap
		}
		_, refused, _ := rule.score()
		waiting := d.class("bulk").Backlog
		t.Logf("passcodes wait at most %v, while %d other messages wait; %d are throttled", slowest, waiting, refused)
		rule.check(t, len(p.got()))
		return trial.Join(
			trial.Most(slowest, gap+gap/50+5*time.Millisecond, 20*gap, "passcodes wait %v, want at most one gap of %v", slowest, gap+gap/50),
			trial.Least(waiting, 900, 500, "%d others wait, want 900", waiting))
	})
}

// arrivalOf returns when a submit reached the provider; zero: it has not.
func arrivalOf(p *provider, from string, sequence uint32) time.Time {
	for _, s := range p.got() {
		if s.from == from && s.sequence == sequence {
			return s.by
		}
	}
	return time.Time{}
}
