package simulate

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaper/policy"
)

// ReadTrace returns a source that reads arrivals from a file. The extension of its name says
// what it holds: .csv or .jsonl; or .pcap or .pcapng, for which see [ReadCapture].
//
// A CSV file begins with a header. The columns of CSV, and the keys of JSON, are:
//
//	time      in seconds or as in RFC 3339, not before that of the line above
//	client    its address, or address:port
//	bytes     of payload
//	port      that the client connected to; default 0: one of the listener's
//	listener  its name; default: the listener with that port, or the only one
//	messages  default 0
//	path, method, host, system_id, source_addr  of the message, as rules see it
//
// Mistakes are policy.Errors with line and column. The first one ends the trace.
func ReadTrace(p *policy.Policy, name string, in io.Reader) (Source, error) {
	t := &trace{policy: p, file: name}
	switch filepath.Ext(name) {
	case ".csv":
		return t.csv(in)
	case ".jsonl":
		return t.jsonl(in), nil
	case ".pcap", ".pcapng":
		return ReadCapture(p, name, in)
	}
	return Source{}, policy.Errors{{File: name, Key: "trace", Problem: fmt.Sprintf("%q is not a format", filepath.Ext(name)),
		Allowed: ".csv, .jsonl, .pcap or .pcapng"}}
}

// A trace reads a file of arrivals. It keeps its position for errors.
type trace struct {
	policy *policy.Policy
	file   string
	last   time.Time // the time of the line before
	line   int
	column func(key string) int

	// The entry of the line before: most lines have the same.
	listener string
	port     uint16
	conn     policy.Conn // of this listener and port, with any client; zero: no line was read
}

// A record is a line of a trace. "" stands for a key that is not given.
type record map[string]string

var (
	traceKeys    = append([]string{"time", "client", "port", "bytes", "messages", "cost", "used", "listener"}, policy.FieldNames()...)
	requiredKeys = []string{"time", "client", "bytes"}
)

// wrong returns an error about a key of the current line.
func (t *trace) wrong(key, allowed, problem string, args ...any) error {
	return policy.Errors{{File: t.file, Line: t.line, Column: t.column(key), Key: key, Problem: fmt.Sprintf(problem, args...), Allowed: allowed}}
}

// csv returns a source that reads a CSV file. It has read the header.
func (t *trace) csv(in io.Reader) (Source, error) {
	lines := csv.NewReader(in)
	lines.ReuseRecord = true
	t.line, t.column = 1, func(string) int { return 1 }
	header, err := lines.Read()
	if err == io.EOF {
		return Source{}, t.wrong("header", "a first line like time,client,bytes", "the file is empty")
	}
	if err != nil {
		return Source{}, t.malformed(err)
	}
	header = slices.Clone(header)
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	if err := t.checkHeader(lines, header); err != nil {
		return Source{}, err
	}
	t.column = func(key string) int {
		_, column := lines.FieldPos(max(slices.Index(header, key), 0))
		return column
	}
	fields := record{}
	return Source{Next: func(a *Arrival) error {
		line, err := lines.Read()
		if err == io.EOF {
			return err
		}
		if err != nil {
			return t.malformed(err)
		}
		t.line, _ = lines.FieldPos(0)
		for i, key := range header {
			fields[key] = line[i]
		}
		return t.arrival(a, fields)
	}}, nil
}

func (t *trace) checkHeader(lines *csv.Reader, header []string) error {
	for i, key := range header {
		t.column = func(string) int { _, column := lines.FieldPos(i); return column }
		if !slices.Contains(traceKeys, key) && !policy.IsField(key) {
			return t.wrong("header", "the columns are "+strings.Join(traceKeys, ", "), "%q is not a column", key)
		}
		if slices.Index(header, key) != i {
			return t.wrong("header", "once", "there are two columns %q", key)
		}
	}
	for _, key := range requiredKeys {
		if !slices.Contains(header, key) {
			return t.wrong("header", "a first line like time,client,bytes", "the column %q is missing", key)
		}
	}
	return nil
}

// malformed returns an error about a line that is not CSV, or the error of reading the file.
func (t *trace) malformed(err error) error {
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return err
	}
	t.line, t.column = bad.Line, func(string) int { return bad.Column }
	return t.wrong("syntax", "as many columns as in the first line, with quotes in pairs", "%v", bad.Err)
}

// maxLine bounds a line of JSON, in bytes.
const maxLine = 64 << 10

// jsonl returns a source that reads a file with an object in each line.
func (t *trace) jsonl(in io.Reader) Source {
	lines := newLines(in)
	t.column = func(string) int { return 1 }
	return Source{Next: func(a *Arrival) error {
		text, err := lines.next()
		if t.line = lines.line; err == errLong {
			return t.wrong("syntax", fmt.Sprintf("%d bytes", maxLine), "the line is too long")
		}
		if err != nil {
			return err
		}
		fields, err := t.object(text)
		if err != nil {
			return err
		}
		return t.arrival(a, fields)
	}}
}

// object reads a line of JSON. Values are texts and numbers.
func (t *trace) object(text []byte) (record, error) {
	const allowed = `an object like {"time": 0.5, "client": "10.0.0.1", "bytes": 1200}`
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	begin, err := in.Token()
	if begin != json.Delim('{') {
		return nil, t.wrong("syntax", allowed, "the line is not an object")
	}
	fields := record{}
	for err == nil && in.More() {
		key, _ := in.Token()
		name, _ := key.(string)
		var value any
		if value, err = in.Token(); err != nil {
			break
		}
		if !slices.Contains(traceKeys, name) && !policy.IsField(name) {
			return nil, t.wrong("key", "the keys are "+strings.Join(traceKeys, ", "), "%q is not a key", name)
		}
		if _, twice := fields[name]; twice {
			return nil, t.wrong(name, "once", "the key is given twice")
		}
		switch v := value.(type) {
		case string:
			fields[name] = v
		case json.Number:
			fields[name] = v.String()
		default:
			return nil, t.wrong(name, "a text or a number", "%v is neither a text nor a number", value)
		}
	}
	if err == nil {
		_, err = in.Token()
	}
	if _, more := in.Token(); err != nil || more != io.EOF {
		return nil, t.wrong("syntax", allowed, "the line is not one whole object")
	}
	return fields, nil
}

// arrival sets the arrival of a line.
func (t *trace) arrival(a *Arrival, r record) (err error) {
	*a = Arrival{Opens: true}
	if a.At, err = t.time(r["time"]); err != nil {
		return err
	}
	client, err := parseClient(r["client"])
	if err != nil {
		return t.wrong("client", clientForm, "%v", err)
	}
	if r["bytes"] == "" {
		return t.wrong("bytes", "a whole number", "it is missing")
	}
	if a.Bytes, err = t.number(r, "bytes", maxBytes); err != nil {
		return err
	}
	if a.Messages, err = t.number(r, "messages", maxBytes); err != nil {
		return err
	}
	if a.Cost, err = t.number(r, "cost", maxBytes); err != nil {
		return err
	}
	if a.Used, err = t.number(r, "used", maxBytes); err != nil {
		return err
	}
	if a.Conn, err = t.enter(r, client); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		a.Message.Set(name, r[name]) // other keys are no fields
	}
	if a.Message.IsZero() {
		return nil
	}
	if err := a.Message.Check(); err != nil {
		return t.wrong("message", messageForm, "%v", err)
	}
	l, _ := t.policy.Listener(a.Conn.Listener)
	if field := a.Message.Misfit(l.Protocol); field != "" {
		return t.wrong(field, messageForm, "listener %q has protocol %q, whose messages have none", l.Name, l.Protocol)
	}
	return nil
}

// maxBytes bounds the bytes of an arrival, so that sums do not overflow.
const maxBytes = 1 << 40

// number reads a whole number; 0 if the key is not given.
func (t *trace) number(r record, key string, most int64) (int64, error) {
	if r[key] == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(r[key], 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, t.wrong(key, fmt.Sprintf("a whole number from 0 to %d", most), "%q is not allowed", r[key])
	}
	return n, nil
}

// enter returns the connection of a line, as rules see it.
func (t *trace) enter(r record, client netip.AddrPort) (policy.Conn, error) {
	n, err := t.number(r, "port", 65535)
	if err != nil {
		return policy.Conn{}, err
	}
	if t.conn.Listener == "" || r["listener"] != t.listener || uint16(n) != t.port {
		listener, port, problem, allowed := entry(t.policy, r["listener"], uint16(n))
		switch {
		case problem == "":
			t.listener, t.port, t.conn = r["listener"], uint16(n), connTo(listener, client, port)
		case r["listener"] == "" && n > 0:
			return policy.Conn{}, t.wrong("port", allowed, "%s", problem)
		default:
			return policy.Conn{}, t.wrong("listener", allowed, "%s", problem)
		}
	}
	t.conn.Source = client
	return t.conn, nil
}

func (t *trace) time(text string) (time.Time, error) {
	var at time.Time
	var err error
	if strings.Contains(text, "T") {
		at, err = time.Parse(time.RFC3339Nano, text)
	} else {
		at, err = parseSeconds(text)
	}
	const allowed = `seconds like 12.5, or RFC 3339 like "2026-01-31T12:00:00.5Z"`
	if err != nil {
		return at, t.wrong("time", allowed, "%q is not a time", text)
	}
	if at.Before(Epoch) {
		return at, t.wrong("time", "from 1970 on", "%q is too early", text)
	}
	if at.Before(t.last) {
		return at, t.wrong("time", "lines in the order of their times", "%q is before the line above", text)
	}
	t.last = at
	return at.UTC(), nil
}

// parseSeconds reads seconds since Epoch, with up to nine decimals.
func parseSeconds(text string) (time.Time, error) {
	whole, fraction, point := strings.Cut(text, ".")
	seconds, err := strconv.ParseUint(whole, 10, 33) // 33 bits reach to the year 2242
	if err != nil || !point {
		return time.Unix(int64(seconds), 0), err
	}
	const zeros = "000000000"
	ns, err := strconv.ParseUint(fraction+zeros[min(len(fraction), len(zeros)):], 10, 64)
	if err == nil && (fraction == "" || len(fraction) > len(zeros)) {
		err = strconv.ErrSyntax
	}
	return time.Unix(int64(seconds), int64(ns)), err
}
