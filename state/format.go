package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"shaper/limit"
)

// The file, in this order; numbers are little endian, and the varints of encoding/binary:
//
//	magic        16 bytes, the last of which is the version
//	length       8 bytes: of the whole file
//	wall         8 bytes: when the file was written, in nanoseconds since 1970
//	boot         16 bytes: which boot of the machine that was
//	up           8 bytes: when the file was written, in nanoseconds since that boot
//	leases       each: its length, and then name, key, at, units, until, expires, record
//	checksum     SHA-256 of all before
//
// A text is its length and its bytes. A time is in nanoseconds from when the file was written.
const (
	kind       = "shaper state " // of all versions
	magic      = kind + "1\n\x01"
	headLength = len(magic) + 8 + 8 + 16 + 8
	mostBytes  = 1 << 31 // of a file: far above a million keys
)

// encode returns the file with leases. Their times are of the process, in which it is now.
func encode(now time.Time, written moment, leases iter.Seq[limit.Lease]) []byte {
	b := append(make([]byte, 0, 4096), magic...)
	b = binary.LittleEndian.AppendUint64(b, 0) // the length, below
	b = binary.LittleEndian.AppendUint64(b, uint64(written.wall))
	b = append(b, written.boot[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(written.up))
	var one []byte
	for lease := range leases {
		one = appendLease(one[:0], now, &lease)
		b = appendText(b, string(one))
	}
	return sealed(b)
}

// sealed returns a file with its length and its checksum.
func sealed(b []byte) []byte {
	if len(b) >= headLength {
		binary.LittleEndian.PutUint64(b[len(magic):], uint64(len(b)+sha256.Size))
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func appendLease(b []byte, now time.Time, l *limit.Lease) []byte {
	b = appendText(appendText(b, l.Name), l.Key)
	b = binary.AppendVarint(b, int64(l.At.Sub(now)))
	b = binary.AppendVarint(b, l.Units)
	b = binary.AppendVarint(b, int64(l.Until.Sub(now)))
	b = binary.AppendVarint(b, int64(l.Expires.Sub(now)))
	return append(b, l.Record...)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Errors of decode.
var (
	errHead    = errors.New("it is cut, or a state file of another version")
	errDamaged = errors.New("its checksum is wrong")
)

// decode returns the leases in a file. present is what the clock tells now.
func decode(now time.Time, present moment, b []byte) (leases []limit.Lease, err error) {
	if len(b) < headLength+sha256.Size || string(b[:len(magic)]) != magic {
		return nil, errHead
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return nil, errDamaged
	}
	r := reader{rest: body[len(magic):]}
	if length := r.fixed(); length != int64(len(b)) {
		return nil, fmt.Errorf("it has %d bytes, but was written with %d", len(b), length)
	}
	written := moment{wall: r.fixed()}
	copy(written.boot[:], r.bytes(len(written.boot)))
	written.up = r.fixed()
	r.now = now.Add(-present.since(written))
	for len(r.rest) > 0 && !r.failed {
		leases = append(leases, r.lease())
	}
	if r.failed {
		return nil, errors.New("it ends in the middle of a lease")
	}
	return leases, nil
}

// A reader takes a file apart.
type reader struct {
	now    time.Time // when the file was written
	rest   []byte
	failed bool // something was missing
}

// lease reads a lease.
func (r *reader) lease() (l limit.Lease) {
	one := reader{now: r.now, rest: []byte(r.text())}
	l.Name, l.Key = one.text(), one.text()
	l.At, l.Units = one.time(), one.number()
	l.Until, l.Expires = one.time(), one.time()
	l.Record = one.rest
	r.failed = r.failed || one.failed || l.At.After(r.now) || l.Units < 0
	return l
}

func (r *reader) bytes(n int) (b []byte) {
	if n > len(r.rest) {
		r.failed, r.rest = true, nil
		return nil
	}
	b, r.rest = r.rest[:n], r.rest[n:]
	return b
}

// fixed reads a number of 8 bytes.
func (r *reader) fixed() int64 {
	b := r.bytes(8)
	if b == nil {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// number reads a varint.
func (r *reader) number() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// time reads a time. What is further away than a Duration can say is limit.Never.
func (r *reader) time() time.Time {
	d := r.number()
	if d == math.MaxInt64 {
		return limit.Never
	}
	return r.now.Add(time.Duration(d))
}

func (r *reader) text() string {
	length, n := binary.Uvarint(r.rest)
	if n <= 0 || length > uint64(len(r.rest)-n) {
		r.failed, r.rest = true, nil
		return ""
	}
	r.rest = r.rest[n:]
	return string(r.bytes(int(length)))
}
