package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/fleet"
	"shaper/fleet/fleettest"
	"shaper/policy"
	"shaper/shaper"
	"shaper/tests/trial"
	"shaper/unit"
)

// fleetPolicy is a policy with a shared class, and a fleet whose store nobody runs.
func fleetPolicy(t *testing.T, fleet, class string) *policy.Policy {
	t.Helper()
	text := fmt.Sprintf(`
[fleet.prod]
address = "127.0.0.1:1"
%s
[class.acme]
%s
shared = "prod"
[listener.gateway]
listen = "127.0.0.1:0"
protocol = "smpp"
upstream = "192.0.2.1:2775"
class = "acme"
`, fleet, class)
	p, _, err := policy.Parse("shaper.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A reload keeps the members that can stay: those whose store, algorithms and windows are the same.
func TestFleetsKeepTheirMembers(t *testing.T) {
	password, sentinels := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "sentinels")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(password, "secret\n")
	write(sentinels, "s3ntinel\n")
	s := newFleets(func(string, string) {}, func(shaper.Member) bool { return false }, slog.New(slog.DiscardHandler))
	defer s.close()
	enforce := func(fleet, class string) *membership {
		p := fleetPolicy(t, fleet, class)
		stores, err := s.readStores(p)
		if err != nil {
			t.Fatal(err)
		}
		all, old := s.enforce(stores, p.Classes)
		s.leave(old)
		one := all["acme"].(*membership)
		one.Set(shaper.Limits(p.Classes[0]))
		return one
	}
	const rate = "rate = \"20 messages/s\"\nheadroom = \"2%\"\n"
	with := fmt.Sprintf("password_file = %q\n", password)
	first := enforce(with, rate)
	for _, c := range []struct {
		class, limit string
		headroom     time.Duration
	}{
		{rate, "19.6 messages/s", 957 * time.Microsecond},
		{"rate = \"30 messages/s\"\nheadroom = \"2%\"\n", "29.4 messages/s", 638 * time.Microsecond},
		{rate + "queue = \"5 messages\"\n", "19.6 messages/s", 957 * time.Microsecond},
	} {
		if enforce(with, c.class) != first {
			t.Errorf("it has joined again for %s", c.class)
		}
		of := s.read()[0]
		if got := of.Classes[0].Limit; got != c.limit || time.Duration(of.Headroom).Round(time.Microsecond) != c.headroom {
			t.Errorf("the limit is %s and the headroom %v, want %s and %v, after a reload of %s", got, time.Duration(of.Headroom), c.limit, c.headroom, c.class)
		}
	}
	if status, _ := first.members[0].Status(); status.Mode.String() != "store" && status.Mode.String() != "stopped" {
		t.Errorf("the mode is %v", status.Mode)
	}
	last := first
	for _, c := range []struct {
		what, fleet, class string
		before             func()
	}{
		{"another password", with, rate, func() { write(password, "another\n") }},
		{"another prefix", with + "prefix = \"x:\"\n", rate, func() {}},
		{"another algorithm", with + "prefix = \"x:\"\n", rate + "algorithm = \"gcra\"\n", func() {}},
		{"a further limit", with + "prefix = \"x:\"\n", rate + "algorithm = \"gcra\"\nalso = [\"600 messages/h\"]\n", func() {}},
	} {
		c.before()
		next := enforce(c.fleet, c.class)
		if next == last {
			t.Errorf("%s: it has not joined again", c.what)
		}
		last = next
	}
	watched := with + fmt.Sprintf("sentinel = \"main\"\nsentinel_username = \"watcher\"\nsentinel_password_file = %q\n", sentinels)
	guarded := enforce(watched, rate)
	if reach := guarded.store.reach; reach.Password != "another" || reach.SentinelUsername != "watcher" || reach.SentinelPassword != "s3ntinel" {
		t.Errorf("the store is reached by %+v", reach)
	}
	if enforce(watched, rate) != guarded {
		t.Error("it has joined again for the same passwords")
	}
	write(sentinels, "n3xt\n")
	next := enforce(watched, rate)
	if next == guarded || next.store.reach.SentinelPassword != "n3xt" {
		t.Error("another password of the sentinels: it has not joined again")
	}
	if next.store.secret != guarded.store.secret {
		t.Error("the password of the sentinels is in the names of keys")
	}
	if n := len(last.members); n != 2 {
		t.Errorf("a class with two limits has %d members", n)
	}
	if last.store.secret == first.store.secret {
		t.Error("two passwords give one secret")
	}
}

// A class that is gone stays a member while somebody is in it. If it comes back meanwhile, it is the same member; else the member leaves
// when nobody is in it any more.
func TestClassThatIsGoneStaysAMember(t *testing.T) {
	var used atomic.Bool
	used.Store(true)
	s := newFleets(func(string, string) {}, func(shaper.Member) bool { return used.Load() }, slog.New(slog.DiscardHandler))
	defer s.close()
	with := fleetPolicy(t, "", "rate = \"20 messages/s\"")
	stores, err := s.readStores(with)
	if err != nil {
		t.Fatal(err)
	}
	enforce := func(classes []policy.Class) *membership {
		all, old := s.enforce(stores, classes)
		s.leave(old)
		one, _ := all["acme"].(*membership)
		return one
	}
	stays := func() *membership {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stay["acme"]
	}
	first := enforce(with.Classes)
	for range 2 {
		enforce(nil)
		enforce(nil)
		if s.look(); stays() != first {
			t.Fatal("the member has left, and somebody is in the class")
		}
		if enforce(with.Classes) != first || stays() != nil {
			t.Fatal("the class has come back, and has joined again")
		}
	}
	enforce(nil)
	changed := fleetPolicy(t, "", "rate = \"20 messages/s\"\nalso = [\"600 messages/h\"]")
	used.Store(false) // the class has another membership now
	if enforce(changed.Classes) == first || stays() != nil {
		t.Error("a class that has come back with other limits has its member from before, or another one beside it")
	}
	used.Store(true)
	enforce(nil)
	used.Store(false)
	if s.look(); stays() != nil {
		t.Error("nobody is in the class, and its member has not left")
	}
}

// TestSetEndsTheMemberBefore sets another algorithm of a shared class. The member that the class had before leaves.
func TestSetEndsTheMemberBefore(t *testing.T) {
	d, err := newDaemon(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.shaper.Close()
	defer d.abandon()
	s := d.engine
	defer s.fleets.close()
	was := fleetPolicy(t, "", "rate = \"1000 messages/day\"\nalgorithm = \"fixed-window\"")
	stores, err := s.fleets.readStores(was)
	if err != nil {
		t.Fatal(err)
	}
	members, _ := s.fleets.enforce(stores, was.Classes)
	s.shaper.SetMembers(members)
	s.shaper.Apply(was.Classes)
	is := fleetPolicy(t, "", "rate = \"1000 messages/day\"\nalgorithm = \"sliding-log\"")
	s.set(is, is.Classes)
	if s.fleets.of("acme") == members["acme"] {
		t.Error("the class has the member from before")
	}
	s.fleets.mu.Lock()
	defer s.fleets.mu.Unlock()
	if stay := len(s.fleets.stay); stay > 0 {
		t.Errorf("%d members stay, although no class uses them", stay)
	}
}

// A server gets another password, and closes the connections of the old one. After a reload with the new one, the members from before
// can say that they leave: else the store holds their share back, and the new ones have none.
func TestMembersLeaveWithANewPassword(t *testing.T) {
	srv := fleettest.StartGuarded(t, "old")
	password := filepath.Join(t.TempDir(), "password")
	s := newFleets(func(string, string) {}, func(shaper.Member) bool { return false }, slog.New(slog.DiscardHandler))
	defer s.close()
	s.names.set(nil)
	enforce := func(text string) *membership {
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := fleetPolicy(t, fmt.Sprintf("password_file = %q\n", password), "rate = \"20 messages/s\"\nheadroom = \"2%\"\n")
		p.Fleets[0].Address = []string{srv.Addr}
		stores, err := s.readStores(p)
		if err != nil {
			t.Fatal(err)
		}
		all, old := s.enforce(stores, p.Classes)
		s.leave(old)
		return all["acme"].(*membership)
	}
	hasAll := func(one *membership) {
		t.Helper()
		trial.Await(t, "the whole share", func() bool {
			status, _ := one.members[0].Status()
			return status.Share == 1
		})
	}
	hasAll(enforce("old"))
	srv.Do("CONFIG", "SET", "requirepass", "new")
	srv.Password = "new"
	srv.Do("CLIENT", "KILL", "TYPE", "normal")
	hasAll(enforce("new"))
}

// The calls to a store are all that the process has made, also while a class says goodbye to its fleet and after that. A fleet that the
// policy no longer has is forgotten.
func TestCallsNeverGoBack(t *testing.T) {
	s := newFleets(func(string, string) {}, func(shaper.Member) bool { return false }, slog.New(slog.DiscardHandler))
	defer s.close()
	p := fleetPolicy(t, "", "rate = \"20 messages/s\"")
	other := p.Classes[0]
	other.Name = "other"
	stores, err := s.readStores(p)
	if err != nil {
		t.Fatal(err)
	}
	members, _ := s.enforce(stores, []policy.Class{p.Classes[0], other})
	trial.Await(t, "both classes have failed calls", func() bool {
		return members["acme"].(*membership).calls().failed > 0 && members["other"].(*membership).calls().failed > 0
	})
	last := s.read()[0]
	goesOn := func(when string) {
		t.Helper()
		is := s.read()[0]
		if is.Calls < last.Calls || is.Failures < last.Failures || is.Failures > is.Calls {
			t.Errorf("%s: %d calls and %d failures, after %d and %d", when, is.Calls, is.Failures, last.Calls, last.Failures)
		}
		last = is
	}
	_, old := s.enforce(stores, p.Classes)
	goesOn("a class is gone")
	s.leave(old)
	goesOn("it leaves its fleet")
	s.hurry()
	s.leaving.Wait()
	goesOn("it has left")
	if n := s.called["prod"]; n.failed == 0 {
		t.Errorf("of the class that has left, there are %+v", n)
	}
	_, old = s.enforce(nil, nil)
	s.leave(old)
	s.leaving.Wait()
	if len(s.called) > 0 {
		t.Errorf("of a fleet that is gone, there are %v", s.called)
	}
}

// TestLogOfAStoreThatIsAway has nobody at the address of a store, and then a server that refuses all. The log has each cause once.
func TestLogOfAStoreThatIsAway(t *testing.T) {
	log, logger := trial.NewLog()
	s := newFleets(func(string, string) {}, func(shaper.Member) bool { return false }, logger)
	defer s.close()
	p, addr := fleetPolicy(t, "", "rate = \"20 messages/s\""), "127.0.0.1:"+fleettest.FreePort(t)
	all, _ := s.enforce(map[string]store{"prod": {conf: p.Fleets[0], reach: fleet.Config{Addresses: []string{addr}}}}, p.Classes)
	goesOn := func(cause string) {
		trial.Await(t, "the log has "+cause, func() bool { return strings.Contains(log.String(), cause) })
		failed := all["acme"].(*membership).calls().failed
		trial.Await(t, "more calls fail", func() bool { return all["acme"].(*membership).calls().failed >= failed+5 })
	}
	goesOn("connection refused")
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			io.WriteString(c, "-DENIED to all\r\n")
			defer c.Close()
		}
	}()
	goesOn("DENIED")
	for _, cause := range []string{"connection refused", "DENIED"} {
		if n := strings.Count(log.String(), cause); n != 1 {
			t.Errorf("the log has %q %d times:\n%s", cause, n, log.String())
		}
	}
}

// TestPauseOfAllLimits has the provider pause a class of two limits. Each of them knows it, and one that a reload puts in the place
// of another, too. What any of them has heard holds.
func TestPauseOfAllLimits(t *testing.T) {
	s := newFleets(func(string, string) {}, func(shaper.Member) bool { return false }, slog.New(slog.DiscardHandler))
	defer s.close()
	enforce := func(window string) *membership {
		p := fleetPolicy(t, "", fmt.Sprintf("rate = \"1000 messages/day\"\nalgorithm = \"fixed-window\"\nwindow = %q\nalso = [\"600 messages/h\"]", window))
		all, old := s.enforce(map[string]store{"prod": {conf: p.Fleets[0], reach: fleet.Config{Addresses: p.Fleets[0].Address}}}, p.Classes)
		s.leave(old)
		return all["acme"].(*membership)
	}
	soon := time.Now().Add(50 * time.Minute)
	one := enforce("24h")
	one.Budget(1, "key")
	one.members[1].Slow("key", time.Hour)
	if one.PausedUntil("key").Before(soon) {
		t.Error("what the second limit has heard does not hold")
	}
	one.Slow("", time.Hour)
	next := enforce("12h")
	if next == one {
		t.Fatal("a class with another window has its members from before")
	}
	for i, m := range append(one.members, next.members...) {
		if m.PausedUntil("").Before(soon) {
			t.Errorf("limit %d of two, and of two after a reload, knows of no pause", i+1)
		}
	}
}

func TestDescribe(t *testing.T) {
	for want, c := range map[string]struct {
		status fleet.Status
		failed error
	}{
		"with this shaper as the only member": {fleet.Status{Mode: fleet.FromStore, Members: 1}, nil},
		"with 2 members":                      {fleet.Status{Mode: fleet.FromStore, Members: 2}, nil},
		"which is away: nothing leaves":       {fleet.Status{Mode: fleet.Stopped, Members: 2}, nil},
		"which is away: this shaper uses its share or the fallback; the last call: EOF": {fleet.Status{Mode: fleet.OnShare}, io.EOF},
	} {
		if got := describe(c.status, c.failed); got != want {
			t.Errorf("%+v, %v: %q, want %q", c.status, c.failed, got, want)
		}
	}
}

// TestExplainNamesTheWorstLimit has no store. The first limit of a class goes on at the rate of the fallback, the second one has
// nothing: what explain says is of the call of that one.
func TestExplainNamesTheWorstLimit(t *testing.T) {
	one := &membership{}
	for i, fallback := range []fleet.Fallback{{Rate: unit.NewRate(unit.Messages, 5, time.Second)}, {}} {
		reach, err := fleet.NewStore(fleet.Config{Addresses: []string{fmt.Sprint("127.0.0.1:", i+1)}})
		if err != nil {
			t.Fatal(err)
		}
		class := fleet.Class{Name: "acme", Rate: unit.NewRate(unit.Messages, 20, time.Second), Late: time.Millisecond}
		m, err := fleet.Join(class, "m", fallback, reach, nil, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(context.Background())
		end()
		defer m.Close(ended)
		one.members = append(one.members, m)
		trial.Await(t, "a call fails", func() bool {
			status, err := m.Status()
			return err != nil && status.Mode != fleet.FromStore
		})
	}
	text := one.describe()
	if !strings.Contains(text, ", which is away: nothing leaves; the last call: ") || !strings.Contains(text, "127.0.0.1:2:") {
		t.Errorf("explain says %q, want that nothing leaves, and the error of 127.0.0.1:2", text)
	}
}

// A file of a fleet that cannot be used is an error at its key.
func TestFilesOfFleets(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := empty + "-pipe" // nobody writes to it, and nothing waits for that
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, fleet := range []string{"password_file = \"/nowhere/redis\"", fmt.Sprintf("password_file = %q", empty), fmt.Sprintf("password_file = %q", pipe), "sentinel_password_file = \"/nowhere/redis\"\nsentinel = \"main\"", "tls = { ca = \"/nowhere/ca.pem\" }", fmt.Sprintf("tls = { ca = %q }", pipe)} {
		p := fleetPolicy(t, fleet, "rate = \"20 messages/s\"\nheadroom = \"2%\"")
		_, err := CheckFiles(p)
		key := strings.ReplaceAll(strings.Fields(fleet)[0], "tls", "tls.ca")
		if err == nil || !strings.Contains(err.Error(), "shaper.toml:4:") || !strings.Contains(err.Error(), "fleet.prod."+key) {
			t.Errorf("%s: the error is %v", fleet, err)
		}
	}
}

// Without a shared class nobody joins anything.
func TestNoFleetCostsNothing(t *testing.T) {
	s := &fleets{log: slog.New(slog.DiscardHandler)}
	conf := policy.DefaultClass("acme")
	if all, old := s.enforce(nil, []policy.Class{conf}); all != nil || old != nil || s.of("acme") != nil || s.read() != nil {
		t.Errorf("a class that is not shared has %v", all)
	}
}
