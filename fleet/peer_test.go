package fleet

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// list returns the members of a class at a time.
func (s *scriptStore) list(t *testing.T, now Stamp, class string) []Peer {
	t.Helper()
	s.setTime(now)
	s.mini.SetTime(time.UnixMicro(int64(now)))
	texts, err := redis.Strings(lister.Do(s.conn, peersArgs("test:", class, 7)...))
	if err != nil || texts[0] != "7" {
		t.Fatalf("%v: %q", err, texts)
	}
	all, err := peersOf(texts[1:])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The store knows who is there, since when, and of whom it has heard last.
func TestPeers(t *testing.T) {
	s := newScriptStore(t, "a")
	class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	begin := Stamp(1_760_000_000_123_456)
	seq := int64(0)
	beat := func(after time.Duration, op Op, member string) {
		t.Helper()
		seq++
		if _, err := s.do(begin.Add(after), &Call{Op: op, Class: class, Member: member, Seq: seq, Sent: begin.Add(after), Grace: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if all := s.list(t, begin, "acme"); len(all) > 0 {
		t.Errorf("nobody has joined, and there are %+v", all)
	}
	beat(0, Beat, "b")
	beat(2*time.Second, Beat, "a")
	beat(3*time.Second, Beat, "b")
	want := []Peer{
		{Name: "a", Share: 0.5, Age: 1500 * time.Millisecond, Seen: 1500 * time.Millisecond, Silent: true, Deadline: defaultDeadline},
		{Name: "b", Share: 0.5, Age: 3500 * time.Millisecond, Seen: 500 * time.Millisecond, Deadline: defaultDeadline},
	}
	if all := s.list(t, begin.Add(3500*time.Millisecond), "acme"); !slices.Equal(all, want) {
		t.Errorf("there are %+v, want %+v", all, want)
	}
	beat(4*time.Second, Leave, "b")
	beat(5*time.Second, Beat, "b") // comes again
	all := s.list(t, begin.Add(5*time.Second), "acme")
	if i := slices.IndexFunc(all, func(p Peer) bool { return p.Name == "b" }); len(all) != 2 || all[i].Age != 0 || all[i].Seen != 0 {
		t.Errorf("after one has come again, there are %+v", all)
	}
	// A member that is silent for too long is forgotten, with all that the store knew of it.
	beat(time.Hour, Beat, "c")
	if all := s.list(t, begin.Add(time.Hour), "acme"); len(all) != 1 || all[0].Name != "c" {
		t.Errorf("after an hour, there are %+v", all)
	}
	for _, field := range []string{"a:a", "j:b", "s:b", "q:a", "h:a"} {
		if s.mini.HGet("test:{acme}", field) != "" {
			t.Errorf("the store still has %s", field)
		}
	}
}

// A live member asks a real server who else is there.
func TestPeersOfMember(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	class := Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	var last *Member
	for _, name := range []string{"two", "one"} {
		store, err := NewStore(Config{Addresses: []string{srv.Addr}, Deadline: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if last, err = Join(class, name, Fallback{}, store, nil, func(string) {}); err != nil {
			t.Fatal(err)
		}
		defer last.Close(t.Context())
	}
	var all []Peer
	trial.Await(t, "both members, each with half", func() (ok bool) {
		var err error
		all, err = last.Peers(context.Background())
		return err == nil && len(all) == 2 && all[0].Name == "one" && all[1].Name == "two" && all[1].Share == 0.5
	})
	if all[1].Age <= 0 || all[1].Seen > all[1].Age {
		t.Errorf("the first member is %+v", all[1])
	}
}

// What is no list is an error.
func TestPeersOfNoList(t *testing.T) {
	for _, texts := range [][]string{nil, {"now"}, {"1", "m"}, {"1", "m", "2", "3", "4", "5", "x"}} {
		if all, err := peersOf(texts); err == nil {
			t.Errorf("%q is the list %+v", texts, all)
		}
	}
	if all, err := peersOf([]string{"9", "", "1", "500000", "0", "0", "0", "m", "10", "500000", "1", "8", "50000"}); err != nil || all[0].Name != "m" || all[1].Name != "" {
		t.Errorf("%v: %+v", err, all)
	}
}
