package tests

// This table lists each requirement on faults, and the tests for it. Tests without a package
// name before them are in this package, and run the whole program. TestTableOfFailures finds them all.
//
//	no descriptors for accept: no spin, recovers   TestWithoutDescriptors, conn TestNoDescriptors
//	the client leaves during the dial              conn TestClientLeavesDuringDial, TestClientLeavesDuringResolve, TestSessionEndedDuringDial
//	slow readers, zero windows, time-outs          conn TestStalledReader, TestIdleTimeout, TestWaitingIsNotIdle
//	half-close                                     conn TestHalfCloseOfClient, TestHalfCloseOfUpstream, TestHalfClosedSessionTimesOut, TestHalfClosedSessionLives, TestHalfCloseTimeoutIsForOneDirection
//	a reset is relayed; truncation is no clean end conn TestResetGoesOn, TestResetWhileWaiting, TestTruncationIsAReset
//	truncated TLS is no clean end                  conn TestTLSTruncation, TestTLSTruncationLosesNothing, TestTLSResetWhileWaiting
//	TLS: silent clients, failing handshakes        TestTLSUpstreamIsVerified, conn TestTLSOfClientFails, TestTLSOfUpstreamFails
//	a stop has a deadline, and counts sessions     TestStopEndsByTheDeadline, TestSecondSignalStopsAtOnce, conn TestShutdownResetsAtTheDeadline
//	an upstream that is our own listener           TestLoopIsRefused, conn TestLoopIsRefused, TestSelfConnect, policy TestReachedBy
//	a panic ends one session                       conn TestPanicEndsOneSession, TestPanicInDatagramSession
//	the watchdog notices a hang                    conn TestProbe, TestProbeNoticesThePacer, daemon TestWatchdogStarves
//	one stalled reader slows no other              TestStalledReaderCostsTheOthersNothing
//	queues bounded in items, bytes and age         TestMemoryIsFlatUnderAGigabyte, shaper TestClassRoom, TestClassMaxWait, conn TestMemoryOfWaitingDatagrams
//	very many sources                              TestMetricsDoNotGrowWithClients, conn TestFloodOfClients
//	overflow, rate 0, extreme rates                TestRateZeroBlocks, leaky TestExtremes, unit TestRateTimeModel, limit TestTokenRateZeroBlocks
//	clock jumps, suspend                           TestSuspendEarnsAtMostOneBurst, leaky TestBucketAfterASuspend, shaper TestClassClockJump
//	late timers do not add up                      TestIperf3ThroughLeakyClasses, leaky TestBucketNeverDrifts, limit TestTokenNeverDrifts
//	a datagram larger than the bucket              conn TestDatagramLargerThanTheBucket, limit TestTokenLargerThanTheBucket
//	loops of datagrams end                         TestLoopIsRefused, conn TestLoopOfTwoServers, TestLoopOfDatagramsIsRefused
//	replies from the address asked; empty ones;
//	ICMP unreachable does not end the loop         conn TestReplyFromTheAddressAsked, TestSizesOfDatagrams, TestUnreachableUpstream
//	control socket: modes, peer, stale             TestControlSocketIsNotForEveryone, TestControlSocketChecksTheUser, TestOneDaemonForOneSocket, daemon TestControlRace
//	metrics: loopback, constant cardinality        TestHealthPages, TestMetricsDoNotGrowWithClients, metrics TestCardinalityIsConstant
//	a policy cut at any byte                       TestPolicyCutAtEveryByte, policy TestTruncated
//	reload: no burst, re-rated, nothing lost       TestNewRateReachesOpenConnection, TestReloadsUnderLoad, shaper TestSetGivesNoBurst
//	traps: a full second at the start              TestIperf3ThroughLeakyClasses (its first second)
//	traps: idle time comes back as a burst         leaky TestBucketIdleEarnsNothing, shaper TestSetAnIdleClass
//	traps: charging the read buffer                TestSmallWritesRunAtTheFullRate
//	traps: rates below 1/s lose seconds            TestHalfAPacketPerSecond
//	traps: megabytes before shaping is felt        conn TestLittleStandsBeforeASlowClass
//	traps: a backlog of 64 KiB per datagram        conn TestMemoryOfWaitingDatagrams
//	kill -9 does not hinder the next start         TestKillLeavesNothingThatHinders
//	a fault never looks like a clean end           TestEnds, TestStopIsNoCleanEnd, conn TestTLSEndsInEveryWay
//	peers that hang, fail or are slow, anywhere    TestBadPeers, TestByteByByte, conn TestUnansweredTimesOut
//	shares and turns in a class tree               shaper TestTreeIsNaive, TestTreeSharesOfAll, TestKeysDoNotStarveTheAssured
//	the class of the real destination is charged   conn TestClassByDestination, TestBodyOfWhatIsInFlight, TestAnswersAcrossReload
//	messages without cost overtake waiting ones    TestPasscodesGoFirst, TestISO8583Links, conn TestRulesOnMessages
//	nothing gives a new budget: reload, restart    TestQuotaOutlivesTheProcess, TestCleanStopLosesNothing, shaper TestSetGivesNoBurst, TestKeysAreRemembered
//	shadow and simulation obey the whole policy    conn TestShadowPolicy, TestShadowPolicyOfDestinations, simulate TestMessages
//	spoofed addresses: tables are bounded          TestMetricsDoNotGrowWithClients, conn TestFloodOfClients, TestDescriptorsOfDatagramSessions, shaper TestKeysFlood
//	names that do not resolve delay nobody else    conn TestHangingNamesHoldUpNobody, TestHangingNamesHoldUpNoConnections, TestHangingSecondNameHoldsUpNobody, TestNameOfDatagramsComesBack, TestShutdownDuringResolve, TestShutdownDuringLookup
//	an address is checked when it is dialled       conn TestLoopIsRefused, TestSelfConnect, TestLoopOfTwoServers
//	time of day: windows begin with the clock      limit TestWindowsAreThoseOfTheClock, TestWindowsFollowTheMonotonicClock
//	zones, days of 23 and 25 hours, one reset      limit TestEachCalendarDayHasItsQuota, TestAClockThatGoesBackOpensNoWindowTwice
//	no secret is logged, no log is flooded         TestSecretsAreNotTold, conn TestFaultsDoNotFloodTheLog

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// Each test that the table above names exists.
func TestTableOfFailures(t *testing.T) {
	t.Parallel()
	table, _, _ := strings.Cut(textOf(t, "failures_test.go"), "\nimport (")
	named := regexp.MustCompile(`(?:([a-z]+) )?(Test[A-Z]\w*)`)
	found := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "//\t") {
			continue
		}
		in := "tests"
		for _, name := range named.FindAllStringSubmatch(line, -1) {
			in = cmp.Or(name[1], in)
			if found++; !hasTest(t, in, name[2]) {
				t.Errorf("package %s has no %s", in, name[2])
			}
		}
	}
	if found < 100 {
		t.Errorf("the table names %d tests", found)
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, in, name string) bool {
	files, err := filepath.Glob("../" + in + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		return strings.Contains(textOf(t, file), "\nfunc "+name+"(")
	})
}

// A suspend earns at most one burst. SIGSTOP and SIGCONT stand for the suspend.
func TestSuspendEarnsAtMostOneBurst(t *testing.T) {
	t.Parallel()
	const rate, quantum, burst = 1e6, 2920, 64 << 10
	const decided = 1460 // bytes that shaper releases before the sleep and writes after it
	const behind = 0.05  // seconds of lateness that a leaky class makes up for
	leaky, leakyUpstream := recordTCP(t)
	token, tokenUpstream := recordTCP(t)
	p := start(t, plain(), strings.NewReplacer("LEAKY", leakyUpstream, "TOKEN", tokenUpstream).Replace(`
[class.leaky]
rate = "1MB/s"
[class.token]
algorithm = "token"
rate = "1MB/s"
burst = "64KiB"
[listener.leaky]
listen = "127.0.0.1:0"
upstream = "LEAKY"
class = "leaky"
[listener.token]
listen = "127.0.0.1:0"
upstream = "TOKEN"
class = "token"
`))
	go flood(dial(t, "", p.addr("leaky")), 16<<10)
	go flood(dial(t, "", p.addr("token")), 16<<10)
	trial.Await(t, "bytes arrive", func() bool { return leaky.total() > 0 && token.total() > 100_000 })
	p.signal(syscall.SIGSTOP)
	asleep := trial.Size(5*time.Second, time.Minute)
	time.Sleep(asleep)
	woken := time.Now()
	p.signal(syscall.SIGCONT)
	trial.Await(t, "bytes arrive again", func() bool { return time.Since(woken) > time.Second && leaky.between(woken, time.Now()) > 500_000 })

	const window = 100 * time.Millisecond
	for _, test := range []struct {
		name  string
		r     *recorder
		extra float64 // beyond rate*t
	}{{"leaky", leaky, decided + quantum + behind*rate}, {"token", token, decided + burst}} {
		got := float64(test.r.between(woken, woken.Add(window)))
		t.Logf("%s: %.0f bytes in the %v after %v of sleep; at most %.0f", test.name, got, window, asleep, rate*window.Seconds()+test.extra)
		trial.Figure(t, fmt.Sprintf("%s, bytes in the %v after %v of sleep; at most %.0f", test.name, window, asleep, rate*window.Seconds()+test.extra), "%.0f", got)
		if got > rate*window.Seconds()+test.extra {
			t.Errorf("%s: %.0f bytes in %v, more than a burst above the rate", test.name, got, window)
		}
	}
}

func TestIdleDaemonTakesNoTime(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), echoAt10MB)
	for range 100 {
		echo(t, dial(t, "", p.addr("a")), 100) // sessions that stay open and idle
	}
	watch := trial.Begin()
	load := p.load(3 * time.Second)
	trial.Figure(t, "100 idle sessions", "%.3f %% of a processor", 100*load)
	if load > 0.02 {
		t.Errorf("100 idle sessions take %.2f %% of a processor, want at most 2 %%", 100*load)
	}
	// Other programs make each wake-up more expensive: the caches are cold.
	watch.Below(t, "3 s of 100 idle sessions", time.Duration(load*float64(3*time.Second)), 15*time.Millisecond)
}

// socket returns the path of the control socket.
func (p *program) socket() string { return filepath.Join(filepath.Dir(p.config), "run", "c.sock") }

func TestControlSocketIsNotForEveryone(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), echoAt10MB)
	for path, want := range map[string]os.FileMode{p.socket(): 0o660, filepath.Dir(p.socket()): 0o750} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	p.must("set", "a", "rate=5MB/s")
	who := fmt.Sprintf("by=\"uid=%d pid=", os.Getuid())
	trial.Await(t, "the log says "+who, func() bool { return strings.Contains(p.log.String(), who) })
}

// The daemon asks the kernel for the user of a control connection. It refuses other users even
// if the socket's mode allows them.
func TestControlSocketChecksTheUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skipUnlessCI(t, "only root can become another user")
	}
	p := start(t, plain(), echoAt10MB)
	for path, mode := range map[string]os.FileMode{p.socket(): 0o666, filepath.Dir(p.socket()): 0o755, filepath.Dir(p.config): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 65534
	cmd := exec.Command(plain(), "-c", p.config, "set", "a", "rate=1MB/s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 77 {
		t.Errorf("user %d: exit %d, want 77 (%v): %s", nobody, code, err, out)
	}
	if got := p.class("a").Rate.PerSecond; got != 10e6 {
		t.Errorf("the rate is %v, want that of the policy", got)
	}
}

// A daemon does not replace the control socket of a living daemon, nor a file that is not a
// socket. A daemon that stops removes its socket.
func TestOneDaemonForOneSocket(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), echoAt10MB)
	_, stderr, code := p.cli("run")
	if want := fmt.Sprintf("another shaper is running (pid %d", p.pid()); code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("a second daemon: exit %d, want 1 and %q: %s", code, want, stderr)
	}
	p.must("status") // the first daemon still answers
	p.stop()
	if _, err := os.Stat(p.socket()); !os.IsNotExist(err) {
		t.Errorf("the socket still exists: %v", err)
	}
	if _, stderr, code := p.cli("status"); code != 69 {
		t.Errorf("without a daemon: exit %d, want 69: %s", code, stderr)
	}
	if err := os.WriteFile(p.socket(), []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := p.cli("run"); code != 1 || !strings.Contains(stderr, "not a socket") {
		t.Errorf("a file in its place: exit %d: %s", code, stderr)
	}
}

// After kill -9, a new daemon replaces the stale socket and listens on the same port.
func TestKillLeavesNothingThatHinders(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	p := start(t, plain(), strings.Replace(echoAt10MB, "127.0.0.1:0", "127.0.0.1:"+port, 1))
	c := dial(t, "", p.addr("a"))
	echo(t, c, 1000)
	p.kill()
	if _, err := os.Stat(p.socket()); err != nil {
		t.Fatalf("kill -9 leaves no socket, so there is nothing to test: %v", err)
	}
	p.run()
	echo(t, dial(t, "", p.addr("a")), 1000)
	if got := p.class("a").Rate.PerSecond; got != 10e6 {
		t.Errorf("after the restart the rate is %v, want that of the policy", got)
	}
}

// The policy determines the metric series. Clients add none, and no label holds an address.
func TestMetricsDoNotGrowWithClients(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), echoAt10MB+`
[listener.u]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "echo:"
class = "a"
`)
	ours := func() (lines []string) {
		text, _ := p.get("/metrics")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "shaper_") {
				lines = append(lines, strings.Fields(line)[0])
			}
		}
		return lines
	}
	before, streams, datagrams := ours(), p.addr("a"), p.addr("u")
	for i := range 200 {
		echo(t, dial(t, fmt.Sprintf("127.0.1.%d", i+1), streams), 10)
		send(t, datagrams, 1)
	}
	after := ours()
	if a, b := strings.Join(before, "\n"), strings.Join(after, "\n"); a != b {
		t.Errorf("the series change: %d before 400 clients, %d after", len(before), len(after))
	}
	if strings.Contains(strings.Join(after, "\n"), "127.0.") {
		t.Error("a label holds an address")
	}
	t.Logf("%d series", len(after))
}

func TestHealthPages(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), echoAt10MB)
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/"} {
		if code := getCode(p, page); code != 200 {
			t.Errorf("%s answers %d, want 200", page, code)
		}
	}
	host, _, err := net.SplitHostPort(p.status().HTTP)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("the metrics are at %q (%v), want loopback", host, err)
	}
}

// A policy whose upstream is its own listener is refused, in every spelling of the address, for
// streams and for datagrams. It would forward to itself for ever.
func TestLoopIsRefused(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	p := start(t, plain(), echoAt10MB)
	for _, upstream := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]"} {
		for _, protocol := range []string{"tcp", "udp"} {
			p.write(fmt.Sprintf(`
[class.a]
rate = "1MB/s"
[listener.a]
listen = "0.0.0.0:%s"
protocol = "%s"
upstream = "%s:%s"
class = "a"
`, port, protocol, upstream, port))
			if stdout, stderr, code := p.cli("reload"); code != 65 || !strings.Contains(stderr, "listener.a.upstream") {
				t.Errorf("%s to %s: exit %d, want 65: %s%s", protocol, upstream, code, stdout, stderr)
			}
		}
	}
}

// A rate of 0 blocks all bytes.
func TestRateZeroBlocks(t *testing.T) {
	t.Parallel()
	r, upstream := recordTCP(t)
	p := start(t, plain(), `
[class.a]
rate = "0bit"
[listener.a]
listen = "127.0.0.1:0"
upstream = "`+upstream+`"
class = "a"
`)
	c := dial(t, "", p.addr("a"))
	if _, err := c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "the bytes wait", func() bool { return p.class("a").Backlog == 1 })
	time.Sleep(200 * time.Millisecond)
	if n := r.total(); n > 0 {
		t.Errorf("%d bytes passed at rate 0", n)
	}
	p.must("set", "a", "rate=1MB/s")
	trial.Await(t, "they pass once there is a rate", func() bool { return r.total() == 1000 })
}
