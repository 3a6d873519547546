package frame

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// cutsOf derives some places to cut a stream at from the stream itself.
func cutsOf(stream []byte) (cuts []int) {
	h := uint32(2166136261)
	for i, c := range stream {
		if h = (h ^ uint32(c)) * 16777619; h%29 == 0 && len(cuts) < 4 {
			cuts = append(cuts, i+1)
		}
	}
	return cuts
}

// A span says where a message ends: its head, and then its body.
type span struct{ head, end int64 }

// spansOf returns the messages that a reader has seen to their end.
func spansOf(r *reader) (spans []span) {
	for i, one := range r.records {
		switch {
		case one.ev == Whole:
			spans = append(spans, span{one.end, one.end})
		case one.ev == End:
			spans = append(spans, span{r.records[i-1].end, one.end})
		}
	}
	return spans
}

// small bounds the streams for a fuzzer, which needs no larger ones.
const small = 1 << 12

func FuzzSMPP(f *testing.F) { f.Fuzz(smppIsRead) }

func smppIsRead(t *testing.T, stream []byte) {
	if len(stream) > small {
		return
	}
	got := sameForAllCuts(t, smppSettings, up, stream, cutsOf(stream))
	ends, counted, reason := naiveSMPP(stream)
	expectNaive(t, got, ends, reason)
	n := int64(0)
	for _, one := range got.records {
		if one.what.kind == Counted {
			n++
		}
	}
	if n != counted {
		t.Fatalf("%d are counted, want %d", n, counted)
	}
	scan(t, smppSettings, func(r *reader, l Link) Scanner { return l.Down() }, stream, whole)
}

// naiveSMPP splits a stream as the standard describes it.
func naiveSMPP(stream []byte) (ends []int64, counted int64, _ Reason) {
	in := bytes.NewReader(stream)
	for {
		var header struct{ Length, Command, Status, Sequence uint32 }
		switch err := binary.Read(in, binary.BigEndian, &header.Length); {
		case err == io.EOF:
			return ends, counted, fine
		case err != nil:
			return ends, counted, CutShort
		case header.Length < 16:
			return ends, counted, BadLength
		case header.Length > 131072:
			return ends, counted, TooLong
		}
		rest := make([]byte, header.Length-4)
		if _, err := io.ReadFull(in, rest); err != nil {
			return ends, counted, CutShort
		}
		ends = append(ends, int64(len(stream)-in.Len()))
		switch binary.BigEndian.Uint32(rest) {
		case 0x04, 0x05, 0x21, 0x103, 0x111:
			counted++
		}
	}
}

func expectNaive(t *testing.T, r *reader, ends []int64, reason Reason) {
	t.Helper()
	var got []int64
	for _, s := range spansOf(r) {
		got = append(got, s.end)
	}
	if !slices.Equal(got, ends) || reasonOf(r.err) != reason {
		t.Fatalf("messages end at %d, %v; want %d, %v", got, r.err, ends, reason)
	}
}

func FuzzISO8583(f *testing.F) { f.Fuzz(iso8583IsRead) }

func iso8583IsRead(t *testing.T, prefix, header uint8, stream []byte) {
	if len(stream) > small {
		return
	}
	all := allPrefixes()
	s := all[int(prefix)%len(all)]
	s.Header = int(header % 16)
	got := sameForAllCuts(t, s, up, stream, cutsOf(stream))
	ends, reason := naiveISO8583(s, stream)
	expectNaive(t, got, ends, reason)
}

// naiveISO8583 reads the lengths by formatting them as text.
func naiveISO8583(s Settings, stream []byte) (ends []int64, _ Reason) {
	at := 0
	for at < len(stream) {
		size := map[Prefix]int{Binary2: 2, ASCII4: 4, BCD2: 2, VML: 4}[s.Prefix]
		if len(stream)-at < size {
			return ends, CutShort
		}
		prefix := stream[at : at+size]
		text := fmt.Sprintf("%d", int(prefix[0])<<8|int(prefix[1]))
		switch s.Prefix {
		case ASCII4:
			text = string(prefix)
		case BCD2:
			text = fmt.Sprintf("%x", prefix)
		}
		n := 0
		for _, c := range text {
			if c < '0' || c > '9' {
				return ends, BadLength
			}
			n = n*10 + int(c-'0')
		}
		if s.IncludesPrefix {
			if n -= size; n < 0 {
				return ends, BadLength
			}
		}
		if at += size + n; at > len(stream) {
			return ends, CutShort
		}
		ends = append(ends, int64(at))
	}
	return ends, fine
}

func FuzzLines(f *testing.F) { f.Fuzz(linesAreRead) }

func linesAreRead(t *testing.T, stream []byte) {
	if len(stream) > small {
		return
	}
	got := sameForAllCuts(t, Settings{Protocol: Lines}, up, stream, cutsOf(stream))
	var ends []int64
	at := int64(0)
	for line := range bytes.Lines(stream) {
		at += int64(len(line))
		ends = append(ends, at)
	}
	expectNaive(t, got, ends, fine)
}

// FuzzRequests compares with net/http. If net/http reads a stream as some requests, the
// scanner must find the same ends of heads and bodies, or refuse the stream there or earlier.
// net/http must read whatever the scanner accepts, unless it complains about what a request
// means.
func FuzzRequests(f *testing.F) { f.Fuzz(requestsAreRead) }

func requestsAreRead(t *testing.T, stream []byte) {
	if len(stream) > small {
		return
	}
	got := sameForAllCuts(t, httpSettings, up, stream, cutsOf(stream))
	in := bufio.NewReader(bytes.NewReader(stream))
	compare(t, stream, in, got, func(int) (io.ReadCloser, error) {
		for range maxBlanks { // which ReadRequest leaves to its caller
			if line, _ := in.Peek(2); string(line) == "\r\n" {
				in.Discard(2)
			}
		}
		if _, err := in.Peek(1); err != nil {
			return nil, err
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			return nil, err
		}
		return r.Body, nil
	})
}

// FuzzResponses does the same for responses. The first byte says which methods they answer.
func FuzzResponses(f *testing.F) { f.Fuzz(responsesAreRead) }

func responsesAreRead(t *testing.T, methods uint8, stream []byte) {
	if len(stream) > small {
		return
	}
	all := []string{"GET", "GET", "GET", "GET"}
	for i := range all {
		if methods>>i&1 != 0 {
			all[i] = "HEAD"
		}
	}
	if methods&16 != 0 {
		all = append(all, "CONNECT")
	}
	got := sameForAllCuts(t, httpSettings, answered(all...), stream, cutsOf(stream))
	in, answered := bufio.NewReader(bytes.NewReader(stream)), 0
	compare(t, stream, in, got, func(i int) (io.ReadCloser, error) {
		method := "GET"
		if answered < len(all) {
			method = all[answered]
		}
		r, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if r.StatusCode/100 != 1 {
			answered++
		}
		if r.StatusCode == 101 || method == "CONNECT" && r.StatusCode/100 == 2 {
			return nil, errTunnel
		}
		return r.Body, nil
	})
}

// errTunnel ends a comparison, because what follows is not HTTP.
var errTunnel = errors.New("tunnel")

// compare reads messages with net/http, and checks that they end at the same places.
func compare(t *testing.T, stream []byte, in *bufio.Reader, got *reader, read func(i int) (io.ReadCloser, error)) {
	t.Helper()
	spans := spansOf(got)
	position := func() int64 { return int64(len(stream) - in.Buffered()) } // the buffer holds the whole stream
	in.Peek(len(stream))
	for i := 0; ; i++ {
		if _, err := in.Peek(1); err != nil {
			if i != len(spans) && reasonOf(got.err) == fine {
				t.Fatalf("%q: %d messages were found, and net/http reads %d", stream, len(spans), i)
			}
			return
		}
		body, err := read(i)
		if err == errTunnel {
			return
		}
		var one span
		if err == nil {
			one.head = position()
			_, err = io.Copy(io.Discard, body)
			one.end = position()
		}
		switch {
		case err != nil && i < len(spans) && !isAboutMeaning(err):
			t.Fatalf("%q: message %d is at %v, and net/http refuses it: %v", stream, i, spans[i], err)
		case err != nil, i == len(spans) && (got.err != nil || got.held):
			return
		case i >= len(spans) || spans[i] != one:
			t.Fatalf("%q: message %d: found are %v, %v; net/http reads one at %v", stream, i, spans, got.err, one)
		}
	}
}

// isAboutMeaning reports whether an error of net/http is about something that does not change
// where a message ends.
func isAboutMeaning(err error) bool {
	for _, text := range []string{
		"parse \"", "invalid URI", // the target
		"too much non-data", // extensions
	} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// FuzzLink drives both directions, and sends and refuses as the script says. The requests in
// flight must be those that were sent and have no answer.
func FuzzLink(f *testing.F) { f.Fuzz(linkIsDriven) }

func linkIsDriven(t *testing.T, steps, client, provider []byte) {
	if len(client)+len(provider) > small {
		return
	}
	l := NewLink(httpSettings)
	var undecided bool
	upward := newReader(t, httpSettings, l.Up(), client)
	downward := newReader(t, httpSettings, l.Down(), provider)
	upward.found = func(m *Message) { undecided = true }
	sent, refused := 0, 0
	for _, step := range steps {
		switch {
		case step < 64:
			upward.read(int(step))
		case step < 128:
			downward.read(int(step - 64))
		case !undecided:
			if _, ok := l.Due(); ok {
				refused--
			}
		case step < 192:
			undecided = false
			l.Sent(l.Up().Message(), start)
			sent++
		default:
			undecided = false
			if !l.Refuse(l.Up().Message(), true) {
				refused++
			}
		}
		answers := 0
		for i, one := range downward.records {
			ended := one.ev == Whole || one.ev == Head && i+1 < len(downward.records)
			if ended && one.what.answers {
				answers++
			}
		}
		if l.InFlight() != sent-answers || refused < 0 {
			t.Fatalf("%d requests are in flight, of %d sent and %d answered", l.InFlight(), sent, answers)
		}
	}
}
