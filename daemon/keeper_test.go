package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"shaper/policy"
	"shaper/tests/trial"
)

// fakeEngine records the rates in force.
type fakeEngine struct {
	fail error         // what prepare returns
	slow chan struct{} // read waits until it is closed; nil: it does not wait

	mu    sync.Mutex
	rates map[string]string
	reads int // how often the files of a policy were read
}

// rate returns the rate of a class.
func (e *fakeEngine) rate(class string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rates[class]
}

func (e *fakeEngine) read(*policy.Policy) files {
	if e.slow != nil {
		<-e.slow
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reads++
	return files{}
}

func (e *fakeEngine) prepare(p *policy.Policy, _ files) (func(), error) {
	if e.fail != nil {
		return nil, e.fail
	}
	return func() {
		e.mu.Lock()
		e.rates = map[string]string{}
		e.mu.Unlock()
		e.set(p, p.Classes)
	}, nil
}

func (e *fakeEngine) set(_ *policy.Policy, classes []policy.Class) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range classes {
		e.rates[c.Name] = c.LimitAt(time.Now()).String()
	}
}

// bench is a keeper in a synctest bubble, with a fake engine.
type bench struct {
	*keeper
	t      *testing.T
	engine *fakeEngine
	logged *trial.Log

	telling sync.Mutex // a reload and a rollback may tell at the same time
	told    []string   // what the service manager was told
}

var operator = caller{uid: 7, pid: 8}

// keep runs a test in a synctest bubble with a keeper whose class "slow" has 64KiB/s.
func keep(t *testing.T, test func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); b.run(ctx) }()
		test(b)
		cancel()
		<-ended
	})
}

// newBench returns a keeper that has started, and whose run the caller calls.
func newBench(t *testing.T) *bench {
	t.Helper()
	logged, log := trial.NewLog()
	b := &bench{t: t, engine: &fakeEngine{}, logged: logged}
	path := filepath.Join(t.TempDir(), "shaper.toml")
	b.keeper = newKeeper(path, b.engine, log, func(state ...string) {
		if state[0] == sd.SdNotifyReloading {
			state = state[:1] // without the time
		}
		b.telling.Lock()
		defer b.telling.Unlock()
		b.told = append(b.told, strings.Join(state, " "))
	})
	b.file("64KiB/s")
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	return b
}

// file writes a policy file in which class "slow" has a rate.
func (b *bench) file(rate string) {
	b.t.Helper()
	text := strings.ReplaceAll(base, "64KiB/s", rate)
	if err := os.WriteFile(b.path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) mustReload(rollback time.Duration) Reloaded {
	b.t.Helper()
	done, err := b.reload(operator, rollback)
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

func (b *bench) mustSet(lasts time.Duration, keysValues ...string) {
	b.t.Helper()
	values := map[string]string{}
	for i := 0; i < len(keysValues); i += 2 {
		values[keysValues[i]] = keysValues[i+1]
	}
	if _, err := b.set(operator, "slow", values, lasts); err != nil {
		b.t.Fatal(err)
	}
}

// failing makes the engine fail from now on; with "" it succeeds again.
func (b *bench) failing(why string) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why != "" {
		err = errors.New(why)
	}
	b.engine.fail = err
	return err
}

// want checks the rate of class "slow" in the engine and as readers see it.
func (b *bench) want(rate string) {
	b.t.Helper()
	synctest.Wait()
	class, _ := b.view.Load().policy.Class("slow")
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.engine.rate("slow"); got != rate || class.Rate.String() != rate {
		b.t.Errorf("the rate is %s, and readers see %s; want %s", got, class.Rate, rate)
	}
}

func TestReloadDiff(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("1mbit")
		done := b.mustReload(0)
		want := []policy.Change{{Op: "~", What: "class", Name: "slow", Key: "rate", Old: "64KiB/s", New: "1mbit"}}
		if !slices.Equal(done.Changes, want) || done.Hash == "" {
			t.Errorf("reload answers %+v", done)
		}
		b.want("1mbit")
		if done := b.mustReload(0); len(done.Changes) != 0 {
			t.Errorf("a reload of the same file changes %v", done.Changes)
		}
		if ready := "READY=1 " + inForceState(done.Hash); !slices.Equal(b.told, []string{"RELOADING=1", ready, "RELOADING=1", ready}) {
			t.Errorf("the service manager was told %v", b.told)
		}
		wantLines(t, b.logged.String(), `msg=changed by="uid=7 pid=8" op=~ what=class name=slow key=rate before=64KiB/s after=1mbit`)
	})
}

// A policy with mistakes changes nothing, and the error has all mistakes.
func TestReloadRejected(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustSet(0, "rate", "2mbit")
		b.file("fast")
		_, err := b.reload(operator, 0)
		if CodeOf(err) != CodePolicy {
			t.Errorf("error is %v", err)
		}
		b.want("2mbit")
		outcome := b.view.Load().outcome
		if outcome.OK || !strings.Contains(outcome.Error, `"fast" is not a rate`) || outcome.Succeeded.IsZero() {
			t.Errorf("the outcome is %+v", outcome)
		}
		wantLines(t, b.logged.String(), `reload rejected; the old policy stays`, `class.slow.rate`)
	})
}

// The status repeats only the first mistakes.
func TestManyMistakesAreBounded(t *testing.T) {
	keep(t, func(b *bench) {
		text := base + "[class.bad]\n"
		for i := range mostReported + 4 {
			text += fmt.Sprintf("key%d = 1\n", i)
		}
		if err := os.WriteFile(b.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := b.reload(operator, 0)
		kept := strings.Split(b.view.Load().outcome.Error, "\n")
		if all := strings.Split(err.Error(), "\n"); !slices.Equal(kept[:mostReported], all[:mostReported]) ||
			!slices.Equal(kept[mostReported:], []string{"and 5 more; shaper check shows them"}) { // the missing rate is one more mistake
			t.Errorf("of %d mistakes the status has\n%s", len(all), strings.Join(kept, "\n"))
		}
	})
}

func TestFirstLines(t *testing.T) {
	for text, want := range map[string]string{
		"":           "",
		"a\nb":       "a\nb",
		"a\nb\nc":    "a\nb\nand 1 more; shaper check shows them",
		"a\nb\nc\nd": "a\nb\nand 2 more; shaper check shows them",
	} {
		if got := firstLines(text, 2); got != want {
			t.Errorf("of %q: %q", text, got)
		}
	}
}

func TestReloadCannotBind(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("1mbit")
		taken := b.failing("address already in use")
		if _, err := b.reload(operator, time.Minute); !errors.Is(err, taken) {
			t.Errorf("error is %v", err)
		}
		b.want("64KiB/s")
		if v := b.view.Load(); !v.rollback.IsZero() || v.outcome.OK {
			t.Errorf("readers see %+v", v)
		}
	})
}

func TestRollback(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("1mbit")
		done := b.mustReload(5 * time.Minute)
		if remaining := time.Until(done.Rollback); remaining != 5*time.Minute {
			t.Errorf("the rollback comes in %v, want 5m", remaining)
		}
		time.Sleep(5*time.Minute - 1)
		b.want("1mbit")
		time.Sleep(time.Nanosecond)
		b.want("64KiB/s")
		if v := b.view.Load(); v.outcome.OK || !v.rollback.IsZero() {
			t.Errorf("readers see %+v after the rollback", v)
		}
		if _, err := b.confirm(operator); err != ErrNothingToConfirm {
			t.Errorf("confirming too late: %v", err)
		}
		if want := []string{"RELOADING=1", "READY=1 " + inForceState(done.Hash), inForceState(b.view.Load().policy.Hash)}; !slices.Equal(b.told, want) || done.Hash == b.view.Load().policy.Hash {
			t.Errorf("the service manager was told %q, want %q", b.told, want)
		}
		if b.engine.reads != 2 { // at the start, and at the reload
			t.Errorf("the files of policies were read %d times: they may be what the rollback is for", b.engine.reads)
		}
	})
}

func TestConfirm(t *testing.T) {
	keep(t, func(b *bench) {
		if _, err := b.confirm(operator); err != ErrNothingToConfirm {
			t.Errorf("confirming nothing: %v", err)
		}
		b.file("1mbit")
		reloaded := b.mustReload(5 * time.Minute)
		if done, err := b.confirm(operator); err != nil || done.Hash != reloaded.Hash {
			t.Errorf("confirm answers %v, %v", done, err)
		}
		time.Sleep(time.Hour)
		b.want("1mbit")
	})
}

// If two reloads are unconfirmed, the rollback goes to what was confirmed last.
func TestRollbackOfTwo(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("1mbit")
		b.mustReload(time.Minute)
		time.Sleep(30 * time.Second)
		b.file("2mbit")
		b.mustReload(time.Minute)
		time.Sleep(59 * time.Second)
		b.want("2mbit")
		time.Sleep(time.Second)
		b.want("64KiB/s")
	})
}

// A reload without a rollback time confirms what it loads. A reload that fails confirms nothing.
func TestReloadConfirms(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("1mbit")
		b.mustReload(time.Minute)
		b.file("2mbit")
		b.mustReload(0)
		time.Sleep(time.Hour)
		b.want("2mbit")

		b.file("3mbit")
		b.mustReload(time.Minute)
		b.file("nonsense")
		if _, err := b.reload(operator, 0); err == nil {
			t.Error("nonsense is loaded")
		}
		time.Sleep(time.Minute)
		b.want("2mbit")
	})
}

// A rollback that fails is tried again until it succeeds.
func TestRollbackRetries(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("1mbit")
		b.mustReload(time.Minute)
		b.failing("address already in use")
		time.Sleep(time.Minute)
		b.want("1mbit")
		wantLines(t, b.logged.String(), "rollback failed")
		b.failing("")
		time.Sleep(rollbackRetry)
		b.want("64KiB/s")
	})
}

func TestSetEndsWithReload(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustSet(0, "rate", "1mbit")
		b.mustSet(time.Hour, "rate", "2mbit")
		b.want("2mbit")
		done := b.mustReload(0) // the file is the same
		b.want("64KiB/s")
		if len(done.Changes) != 1 || done.Changes[0].Old != "2mbit" {
			t.Errorf("the reload changes %v", done.Changes)
		}
		time.Sleep(2 * time.Hour)
		b.want("64KiB/s")
	})
}

// The log says until when a set holds: a time, or the next reload.
func TestSetIsLogged(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustSet(0, "rate", "1mbit")
		wantLines(t, b.logged.String(), `msg=set by="uid=7 pid=8" changes=1 class=slow until="the next reload"`)
		b.mustSet(time.Hour, "rate", "2mbit")
		wantLines(t, b.logged.String(), "class=slow until="+time.Now().Add(time.Hour).Format("2006-01-02T15:04:05"))
	})
}

// Each set ends at its own time. Then the set before it holds again.
func TestSetForATime(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustSet(10*time.Minute, "rate", "1mbit")
		b.mustSet(time.Minute, "rate", "2mbit")
		b.mustSet(20*time.Minute, "queue", "5 packets")
		b.want("2mbit")
		time.Sleep(time.Minute - 1)
		b.want("2mbit")
		time.Sleep(time.Nanosecond)
		b.want("1mbit")
		time.Sleep(9 * time.Minute)
		b.want("64KiB/s")
		if c, _ := b.view.Load().policy.Class("slow"); c.Queue.String() != "5 packets" {
			t.Errorf("the queue is %v", c.Queue)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if v := b.view.Load(); len(v.sets) != 0 || v.policy != v.file {
			t.Errorf("%v is still set", v.sets)
		}
	})
}

// A set that is invalid without another one ends with it.
func TestSetFitsNoMore(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustSet(time.Minute, "algorithm", "token")
		b.mustSet(0, "burst", "10KiB")
		time.Sleep(time.Minute)
		synctest.Wait()
		if v := b.view.Load(); len(v.sets) != 0 || v.policy != v.file {
			t.Errorf("%v is still set", v.sets)
		}
	})
}

func TestSetRejected(t *testing.T) {
	keep(t, func(b *bench) {
		for _, values := range []map[string]string{{"rate": "fast"}, {"colour": "red"}, {"burst": "1KiB"}} {
			if _, err := b.set(operator, "slow", values, 0); CodeOf(err) != CodePolicy {
				t.Errorf("set %v: %v", values, err)
			}
		}
		if _, err := b.set(operator, "slwo", map[string]string{"rate": "1mbit"}, 0); err == nil ||
			err.Error() != `class.slwo: there is no class "slwo"; did you mean "slow"?` {
			t.Errorf("error is %v", err)
		}
		b.want("64KiB/s")
	})
}

// A rollback brings back the sets that have not ended meanwhile.
func TestRollbackOfSets(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustSet(time.Hour, "rate", "1mbit")
		b.mustSet(time.Minute, "rate", "2mbit")
		b.mustReload(2 * time.Minute)
		b.want("64KiB/s")
		time.Sleep(2 * time.Minute)
		b.want("1mbit")
		time.Sleep(time.Hour)
		b.want("64KiB/s")
	})
}

func TestStoppedKeeper(t *testing.T) {
	keep(t, func(b *bench) {
		b.mustReload(time.Minute)
		b.stop(bySignal)
		_, errReload := b.reload(operator, 0)
		_, errSet := b.set(operator, "slow", map[string]string{"rate": "1mbit"}, 0)
		_, errConfirm := b.confirm(operator)
		for _, err := range []error{errReload, errSet, errConfirm} {
			if err != ErrStopping {
				t.Errorf("a change while the daemon stops returns %v, want ErrStopping", err)
			}
		}
		time.Sleep(time.Hour)
		if b.view.Load().rollback.IsZero() {
			t.Error("the reload was undone while the daemon stops")
		}
		wantLines(t, b.logged.String(), "shaper stops before the last reload was confirmed")
	})
}

// While open sessions go on after a stop, sets end and schedules hold as before.
func TestStoppedKeeperFollowsTheTime(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("64KiB/s\"\nat = [{ from = \"00:10\", to = \"00:20\", rate = \"8KiB/s\" }] #")
		b.mustReload(time.Hour) // at midnight, by the clock of the bubble
		b.mustSet(5*time.Minute, "rate", "1MiB/s")
		b.stop(bySignal)
		for _, want := range []string{"64KiB/s", "8KiB/s", "8KiB/s", "64KiB/s"} {
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if got := b.engine.rate("slow"); got != want {
				t.Errorf("at %s the rate is %s, want %s", time.Now().UTC().Format("15:04"), got, want)
			}
		}
	})
}

// A key or a certificate that cannot be read for long delays the reload that reads it, and nothing else.
func TestSlowFilesDelayOnlyTheirReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.engine.slow = make(chan struct{})
		b.file("1mbit")
		ended := make(chan error, 1)
		go func() { _, err := b.reload(operator, 0); ended <- err }()
		synctest.Wait()
		free := b.mu.TryLock()
		if !free {
			t.Error("a reload that reads files holds up all changes")
		} else {
			b.mu.Unlock()
			b.mustSet(0, "rate", "2mbit")
			b.stop(bySignal)
		}
		close(b.engine.slow)
		if err := <-ended; free && err != ErrStopping {
			t.Errorf("after the stop, the reload returns %v", err)
		}
	})
}

func TestManyChangesAreBounded(t *testing.T) {
	keep(t, func(b *bench) {
		b.logChange(operator, Record{What: "reload", Changes: make([]policy.Change, mostLogged+5)})
		if n := strings.Count(b.logged.String(), "msg=changed"); n != mostLogged+1 {
			t.Errorf("%d lines are logged", n)
		}
		wantLines(t, b.logged.String(), "more=5")
	})
}

// A reload reads all pieces again, and its record names them.
func TestReloadOfPieces(t *testing.T) {
	keep(t, func(b *bench) {
		dir := filepath.Dir(b.path)
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("a.toml", "[class.piece]\nrate = \"1mbit\"\n")
		write("shaper.toml", strings.Replace(base, "[daemon]\n", "[daemon]\ninclude = \"[ab].toml\"\n", 1))
		want := []string{b.path, filepath.Join(dir, "a.toml")}
		if done := b.mustReload(0); !slices.Equal(done.Files, want) || b.engine.rate("piece") != "1mbit" {
			t.Errorf("read %v, want %v; the rates are %v", done.Files, want, b.engine.rates)
		}
		write("a.toml", "[class.piece]\nrate = \"2mbit\"\n")
		write("b.toml", "[class.other]\nrate = \"3mbit\"\n")
		if b.mustReload(0); b.engine.rate("piece") != "2mbit" || b.engine.rate("other") != "3mbit" {
			t.Errorf("the rates are %v", b.engine.rates)
		}
		if !strings.Contains(b.logged.String(), filepath.Join(dir, "b.toml")) {
			t.Errorf("the log does not name a piece:\n%s", b.logged)
		}
	})
}

// A set of a rate of 0 says that it does not stop a class that borrows.
func TestSetSaysWhatItDoesNotStop(t *testing.T) {
	keep(t, func(b *bench) {
		b.file("4KiB/s\"\nparent = \"fast\"\nceil = \"64KiB/s\" #")
		b.mustReload(0)
		for _, c := range []struct {
			values map[string]string
			want   string
		}{
			{map[string]string{"rate": "0B/s"}, `class.slow.rate: "0bit" stops nothing: the class still borrows up to its ceil "64KiB/s"; ceil = "0bit" too, if nothing is to leave`},
			{map[string]string{"rate": "0B/s", "ceil": "0B/s"}, ""},
		} {
			if done, err := b.set(operator, "slow", c.values, 0); err != nil || done.Warnings == nil || done.Warnings.Error() != c.want {
				t.Errorf("after %v: %v, %v", c.values, done.Warnings, err)
			}
		}
	})
}

// A schedule changes the rate when its time comes, and back. A set of the rate comes before it.
func TestSchedule(t *testing.T) {
	keep(t, func(b *bench) {
		rate := func(what, want string) {
			t.Helper()
			synctest.Wait()
			if got := b.engine.rate("slow"); got != want {
				t.Errorf("%s the rate is %s, want %s", what, got, want)
			}
		}
		b.file("64KiB/s\"\nat = [{ from = \"00:10\", to = \"00:20\", rate = \"8KiB/s\" }, { from = \"00:15\", to = \"00:16\", rate = \"0B/s\" }] #")
		b.mustReload(0) // at midnight, by the clock of the bubble
		time.Sleep(10*time.Minute - time.Nanosecond)
		rate("before its time", "64KiB/s")
		time.Sleep(time.Nanosecond)
		rate("at its time", "8KiB/s")
		if log := b.logged.String(); !strings.Contains(log, "msg=schedule") || !strings.Contains(log, "name=slow key=rate before=64KiB/s after=8KiB/s") {
			t.Errorf("the log does not say so:\n%s", log)
		}
		time.Sleep(5 * time.Minute)
		rate("in the second time", "0bit")
		time.Sleep(time.Minute)
		rate("after it", "8KiB/s")
		if _, err := b.set(operator, "slow", map[string]string{"rate": "1MiB/s"}, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		rate("by a set", "1MiB/s")
		time.Sleep(5 * time.Minute)
		rate("by a set, when the time ends", "1MiB/s")
		time.Sleep(5 * time.Minute)
		rate("after the set", "64KiB/s")
		time.Sleep(23*time.Hour + 50*time.Minute)
		rate("the next day", "8KiB/s")
	})
}

// A schedule that says the same again, some of its times after the keeper has looked, leaves it nothing to
// do at once. A set of the rate covers times of the schedule; so does a machine that sleeps.
func TestScheduleThatSaysTheSameAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.file("64KiB/s\"\nat = [{ from = \"21:00\", to = \"09:00\", rate = \"8KiB/s\" }] #")
		b.mustReload(0) // at midnight, by the clock of the bubble
		time.Sleep(9 * time.Hour)
		b.expire()
		time.Sleep(3 * time.Hour)
		b.mustSet(24*time.Hour, "rate", "1MiB/s")
		time.Sleep(24 * time.Hour)
		b.expire()
		b.want("64KiB/s")
		if next := b.untilNext(); next <= 0 {
			t.Errorf("after the set, at noon, the keeper wakes in %v", next)
		}
	})
}
