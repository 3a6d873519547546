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

// framed relays connections to an upstream. It uses package frame to split them into messages,
// and counts these.
type framed struct {
	t        *testing.T
	settings frame.Settings
	addr     string
	upstream string

	open sync.WaitGroup // connections

	mu       sync.Mutex     // guards the fields below
	seen     map[string]int // messages of the client, by kind, or in SMPP by command
	cost     int64          // of these messages
	answered int            // requests that the upstream has answered
	inFlight int            // requests without an answer at the end of their connection
	errs     []error
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

// framedConn is one connection. Its two directions share the link.
type framedConn struct {
	*framed
	mu    sync.Mutex // guards link; taken before framed.mu
	moved sync.Cond  // signals that a direction has scanned something
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

// requested counts a message of the client. The caller holds c.mu.
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

// responded counts a message of the upstream. The caller holds c.mu.
func (c *framedConn) responded(m *frame.Message) {
	if m.Answers {
		c.framed.mu.Lock()
		c.answered++
		c.framed.mu.Unlock()
	}
}

// pass relays one direction until it ends. It reads pieces of random sizes, and writes what the
// scanner releases. It calls found for each message.
func (c *framedConn) pass(src, dst *net.TCPConn, s frame.Scanner, found func(*frame.Message)) {
	defer dst.CloseWrite()
	var pending []byte // read and not yet written
	for piece := make([]byte, 8192); ; {
		n, err := src.Read(piece[:1+rand.IntN(len(piece))])
		pending = append(pending, piece[:n]...)
		for held := true; held; {
			var n int
			var wrong error
			if n, held, wrong = c.scan(s, pending, found); wrong != nil {
				c.fail(wrong)
				src.Close()
				return
			}
			if _, err := dst.Write(pending[:n]); err != nil {
				return
			}
			pending = append(pending[:0], pending[n:]...)
		}
		if err != nil {
			if err == io.EOF {
				c.end(s, pending)
			}
			return
		}
	}
}

// scan returns how many bytes of p may be written, and whether the bytes after them have to wait
// for the other direction. If the first byte has to wait, scan itself waits.
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

// end tells the scanner that its direction has ended with rest unwritten.
func (c *framedConn) end(s frame.Scanner, rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := s.End(rest); err != nil {
		c.fail(err)
	}
	c.moved.Broadcast()
}

func (f *framed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// expect waits for the connections to end, and checks which messages they carried.
func (f *framed) expect(seen map[string]int, cost int64) {
	f.t.Helper()
	ended := make(chan struct{})
	go func() { f.open.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		f.t.Fatal("a connection has not ended")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !maps.Equal(f.seen, seen) || f.cost != cost || len(f.errs) > 0 {
		f.t.Errorf("messages %v of cost %d (errors %v), want %v of cost %d", f.seen, f.cost, f.errs, seen, cost)
	}
}

// smsc is a provider in Perl. It counts the PDUs that it reads, answers them, and prints the
// counts at the end.
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

// esme is a client in Perl. It sends PDUs of all sizes with up to 20 in flight, and answers the
// PDUs that it gets.
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

// Net::SMPP, another implementation of SMPP, counts the same PDUs and destinations on both ends
// as package frame does between them.
func TestSMPPCounts(t *testing.T) {
	t.Parallel()
	perl := tool(t, "perl", "perl")
	if exec.Command(perl, "-MNet::SMPP", "-e", "1").Run() != nil {
		skipUnlessCI(t, "Net::SMPP is not installed: apt-get install libnet-smpp-perl")
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
		t.Fatalf("the provider has counted too few PDUs: %v", seen)
	}
	f.expect(seen, int64(seen["4"]+seen["103"]+dests))
	if counted := seen["4"] + seen["103"] + seen["21"]; f.answered != counted || f.inFlight != 0 {
		t.Errorf("of %d requests, %d were answered and %d are in flight", counted, f.answered, f.inFlight)
	}
}

// net/http counts the same requests as package frame does between client and server, and each
// answer is the expected one.
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
		t.Errorf("%d requests were answered, want %d; %d are in flight, want 0", f.answered, requests.Load(), f.inFlight)
	}
}

// askHTTP sends request n, whose number determines its method, path and body, and checks the
// answer.
func askHTTP(client *http.Client, addr string, n int) error {
	method := []string{"POST", "GET", "HEAD", "PUT"}[n%4]
	path := []string{"/", "/204", "/chunks", "/304", "/hints", "/close"}[n%6]
	body := noise(uint64(n), n*n%100_000)
	var in io.Reader
	switch {
	case method == "GET" || method == "HEAD":
		body = nil
	case n%3 == 0:
		in = struct{ io.Reader }{bytes.NewReader(body)} // hides the length, so the body is chunked
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

// After an upgrade, a connection carries any bytes in both directions.
func TestHTTPUpgrade(t *testing.T) {
	t.Parallel()
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
	// The client sends bytes of the new protocol at once, before the answer.
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
		t.Errorf("the echo differs: %d bytes of %d came back, %v", len(got), len(payload), err)
	}
	f.expect(map[string]int{"counted": 1}, 1)
}
