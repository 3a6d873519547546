package tests

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/frame"
)

// framed passes connections on, message by message, as package frame tells them
// apart, and counts what it sees.
type framed struct {
	t        *testing.T
	settings frame.Settings
	addr     string
	upstream string

	mu       sync.Mutex
	seen     map[string]int // messages of the client: by kind, or by command
	cost     int64
	answered int
	inFlight int // at the ends of connections
	errs     []error
	open     sync.WaitGroup
}

func newFramed(t *testing.T, s frame.Settings, upstream string) *framed {
	f := &framed{t: t, settings: s, upstream: upstream, seen: map[string]int{}}
	f.addr = serve(t, func(c *net.TCPConn) {
		f.open.Add(1)
		defer f.open.Done()
		f.relay(c)
	})
	return f
}

// framedConn is one connection, whose directions take turns.
type framedConn struct {
	*framed
	mu    sync.Mutex
	moved sync.Cond // when either direction has gone on
	link  frame.Link
}

func (f *framed) relay(client *net.TCPConn) {
	upstream, err := net.Dial("tcp", f.upstream)
	if err != nil {
		f.t.Error(err)
		return
	}
	defer upstream.Close()
	c := &framedConn{framed: f, link: frame.NewLink(f.settings)}
	c.moved.L = &c.mu
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.pass(upstream.(*net.TCPConn), client, c.link.Down(), c.responded)
	}()
	c.pass(client, upstream.(*net.TCPConn), c.link.Up(), c.requested)
	<-done
	f.mu.Lock()
	f.inFlight += c.link.InFlight()
	f.mu.Unlock()
}

// requested sends what the client asks.
func (c *framedConn) requested(m *frame.Message) {
	c.framed.mu.Lock()
	defer c.framed.mu.Unlock()
	name := m.Kind.String()
	if c.settings.Protocol == frame.SMPP {
		name = fmt.Sprintf("%x", m.Command)
	}
	c.seen[name]++
	c.cost += m.Cost
	if m.Kind == frame.Counted {
		c.link.Sent(m, time.Now())
	}
}

func (c *framedConn) responded(m *frame.Message) {
	if m.Answers {
		c.framed.mu.Lock()
		c.answered++
		c.framed.mu.Unlock()
	}
}

// pass reads pieces of any size, and writes what a scanner has told apart.
func (c *framedConn) pass(src, dst *net.TCPConn, s frame.Scanner, found func(*frame.Message)) {
	defer dst.CloseWrite()
	var left []byte
	for piece := make([]byte, 8192); ; {
		n, err := src.Read(piece[:1+rand.IntN(len(piece))])
		left = append(left, piece[:n]...)
		for held := true; held; {
			var n int
			var wrong error
			if n, held, wrong = c.scan(s, left, found); wrong != nil {
				c.fail(wrong)
				src.Close()
				return
			}
			if _, err := dst.Write(left[:n]); err != nil {
				return
			}
			left = append(left[:0], left[n:]...)
		}
		if err != nil {
			if err == io.EOF {
				c.end(s, left)
			}
			return
		}
	}
}

// scan returns how many bytes may go on, and whether those behind them have to
// wait for the other direction. Before any, it waits for that itself.
func (c *framedConn) scan(s frame.Scanner, p []byte, found func(*frame.Message)) (at int, held bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.moved.Broadcast()
	for {
		n, event, err := s.Next(p[at:])
		switch at += n; event {
		case frame.More:
			return at, false, err
		case frame.Hold:
			if at > 0 {
				return at, true, nil
			}
			c.moved.Wait()
		case frame.Whole, frame.Head:
			found(s.Message())
		}
	}
}

func (c *framedConn) end(s frame.Scanner, left []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := s.End(left); err != nil {
		c.fail(err)
	}
	c.moved.Broadcast()
}

func (f *framed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// expect waits for the connections to end, and compares what went through them.
func (f *framed) expect(seen map[string]int, cost int64) {
	f.t.Helper()
	ended := make(chan struct{})
	go func() { f.open.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		f.t.Fatal("a connection does not end")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !maps.Equal(f.seen, seen) || f.cost != cost || len(f.errs) > 0 {
		f.t.Errorf("seen %v, which cost %d, %v; not %v, which cost %d", f.seen, f.cost, f.errs, seen, cost)
	}
}

// smsc counts the PDUs it reads, answers them, and prints the counts at the end.
const smsc = `
use Net::SMPP; $| = 1;
my $l = Net::SMPP->new_listen('127.0.0.1', port => 0) or die "listen: $!";
print $l->sockport, "\n";
my $s = $l->accept or die "accept: $!";
my (%n, $dests);
while (my $pdu = $s->read_pdu) {
	my ($cmd, $seq) = ($pdu->{cmd}, $pdu->{seq});
	$n{sprintf '%x', $cmd}++;
	$dests += @{$pdu->{destination_addr}} if $cmd == 0x21;
	if ($cmd == 0x09) { $s->set_version(0x34); $s->bind_transceiver_resp(system_id => 'smsc', seq => $seq) }
	elsif ($cmd == 0x04) { $s->submit_sm_resp(message_id => "id$seq", seq => $seq);
		$s->deliver_sm(source_addr => '1', destination_addr => '2', short_message => 'receipt', async => 1) if $seq % 5 == 0 }
	elsif ($cmd == 0x21) { $s->submit_multi_resp(message_id => 'm', seq => $seq, destination_addr => ['9'], error_status_code => [0x0b]) }
	elsif ($cmd == 0x103) { $s->data_sm_resp(message_id => 'd', seq => $seq) }
	elsif ($cmd == 0x15) { $s->enquire_link_resp(seq => $seq) }
	elsif ($cmd == 0x06) { $s->unbind_resp(seq => $seq); last }
}
print "dests $dests\n";
print "$_ $n{$_}\n" for sort keys %n;
`

// esme sends PDUs of all sizes without waiting for their answers, then reads
// these, and answers what it is asked.
const esme = `
use Net::SMPP; $| = 1;
my $n = $ARGV[1];
my ($s) = Net::SMPP->new_transceiver('127.0.0.1', port => $ARGV[0], system_id => 'acme', password => 'secret') or die "connect: $!";
srand 7;
my ($answers, $asked) = (0, 0);
for my $i (1 .. $n) {
	my $text = join '', map { chr rand 256 } 1 .. rand 160;
	if ($i % 7 == 0) { $s->submit_multi(destination_addr => [map { "4477$_" } 1 .. 1 + $i % 50], short_message => $text, async => 1) }
	elsif ($i % 11 == 0) { $s->data_sm(source_addr => 'otp', destination_addr => '1', message_payload => $text x 40, async => 1) }
	elsif ($i % 13 == 0) { $s->enquire_link(async => 1) }
	else { $s->submit_sm(source_addr => 'acme', destination_addr => "49$i", short_message => $text, async => 1) }
	$asked++;
	while ($asked - $answers > ($i == $n ? 0 : 20)) {
		my $pdu = $s->read_pdu or die "read: $!";
		if ($pdu->{cmd} & 0x80000000) { $answers++ } else { $s->deliver_sm_resp(message_id => '', seq => $pdu->{seq}) }
	}
}
$s->unbind(async => 1);
1 while $s->read_pdu;
`

// TestSMPPCounts has the other SMPP implementation of Debian, Net::SMPP, on both
// ends: it counts PDUs and destinations as package frame does.
func TestSMPPCounts(t *testing.T) {
	t.Parallel()
	perl := tool(t, "perl", "perl")
	if exec.Command(perl, "-MNet::SMPP", "-e", "1").Run() != nil {
		missing(t, "Net::SMPP is not installed: apt-get install libnet-smpp-perl")
	}
	server := exec.Command(perl, "-e", smsc)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	lines := bufio.NewScanner(out)
	lines.Scan()
	f := newFramed(t, frame.Settings{Protocol: frame.SMPP}, "127.0.0.1:"+lines.Text())
	_, port, _ := net.SplitHostPort(f.addr)
	if out, err := exec.Command(perl, "-e", esme, port, "3000").CombinedOutput(); err != nil {
		t.Fatalf("the client: %v\n%s", err, out)
	}
	seen, dests := map[string]int{}, 0
	for lines.Scan() {
		var name string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &name, &n); err != nil {
			t.Fatal(err)
		}
		if name == "dests" {
			dests = n
		} else {
			seen[name] = n
		}
	}
	if seen["4"] < 1000 || seen["21"] < 300 || seen["103"] < 100 || seen["80000005"] < 100 {
		t.Fatalf("the provider has seen %v", seen)
	}
	f.expect(seen, int64(seen["4"]+seen["103"]+dests))
	if counted := seen["4"] + seen["103"] + seen["21"]; f.answered != counted || f.inFlight != 0 {
		t.Errorf("of %d requests %d were answered, %d are in flight", counted, f.answered, f.inFlight)
	}
}

// TestHTTPCounts has net/http on both ends: it counts requests as package frame
// does, and gets the same bytes as without it.
func TestHTTPCounts(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h := sha256.New()
		io.Copy(h, r.Body)
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/chunks":
			for i := range 20 {
				fmt.Fprintf(w, "%x %d\n", h.Sum(nil), i)
				w.(http.Flusher).Flush()
			}
			w.Header().Set(http.TrailerPrefix+"Digest", "x")
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprintf(w, "%x", h.Sum(nil))
		case "/close":
			w.Header().Set("Connection", "close")
			fmt.Fprintf(w, "%x", h.Sum(nil))
		default:
			fmt.Fprintf(w, "%x", h.Sum(nil))
		}
	}))
	defer server.Close()
	f := newFramed(t, frame.Settings{Protocol: frame.HTTP}, server.Listener.Addr().String())
	transport := &http.Transport{MaxConnsPerHost: 8, ExpectContinueTimeout: patience}
	client := &http.Client{Transport: transport, Timeout: patience}
	var sent atomic.Int64
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 100 {
				n := worker*100 + i
				sent.Add(1)
				if err := askHTTP(client, f.addr, n); err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
	transport.CloseIdleConnections()
	if requests.Load() != sent.Load() {
		t.Errorf("the server has read %d requests of %d", requests.Load(), sent.Load())
	}
	f.expect(map[string]int{"counted": int(requests.Load())}, requests.Load())
	if f.answered != int(requests.Load()) || f.inFlight != 0 {
		t.Errorf("%d were answered, %d are in flight", f.answered, f.inFlight)
	}
}

// askHTTP sends a request whose method, path and body are those of a number,
// and checks the answer.
func askHTTP(client *http.Client, addr string, n int) error {
	method := []string{"POST", "GET", "HEAD", "PUT"}[n%4]
	path := []string{"/", "/204", "/chunks", "/304", "/hints", "/close"}[n%6]
	body := noise(uint64(n), n*n%100_000)
	var in io.Reader
	switch {
	case method == "GET" || method == "HEAD":
		body = nil
	case n%3 == 0:
		in = struct{ io.Reader }{bytes.NewReader(body)} // in chunks
	default:
		in = bytes.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+addr+path, in)
	if err != nil {
		return err
	}
	if n%5 == 0 && in != nil {
		r.Header.Set("Expect", "100-continue")
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%x", sha256.Sum256(body))
	if method == "HEAD" || path == "/204" || path == "/304" {
		want = ""
	}
	if string(got) != want && (path != "/chunks" || !strings.HasPrefix(string(got), want)) {
		return fmt.Errorf("%s %s: got %q", method, path, got)
	}
	return nil
}

// An upgraded connection carries what it likes, both ways.
func TestHTTPUpgrade(t *testing.T) {
	upstream := serve(t, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		if _, err := http.ReadRequest(in); err != nil {
			t.Error(err)
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, in)
	})
	f := newFramed(t, frame.Settings{Protocol: frame.HTTP}, upstream)
	c := dial(t, "", f.addr)
	// The bytes of the other protocol come at once, before the answer.
	payload := append([]byte("GET / HTTP/1.1\n\n"), noise(1, 200_000)...)
	go func() {
		c.Write(append([]byte("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"), payload...))
		c.CloseWrite()
	}()
	in := bufio.NewReader(c)
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != 101 {
		t.Fatal(r, err)
	}
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(payload), err)
	}
	f.expect(map[string]int{"counted": 1}, 1)
}
