package state

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"shaper/limit"
)

var (
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	written = moment{wall: start.UnixNano(), boot: [16]byte{1}, up: int64(time.Hour)}
)

// someLeases returns leases of all kinds, as of start.
func someLeases() []limit.Lease {
	return []limit.Lease{
		{Name: "acme", At: start.Add(-time.Second), Units: 10, Until: start.Add(time.Minute), Expires: start.Add(time.Hour), Record: []byte{1, 2, 3}},
		{Name: "acme", Key: "\x00key\xff", At: start, Until: start, Expires: limit.Never, Record: []byte("record")},
		{Name: "", At: start.Add(-1000 * time.Hour), Units: 1 << 60, Until: start.Add(-time.Hour), Expires: start},
	}
}

// same reports whether leases are equal.
func same(a, b []limit.Lease) bool {
	return slices.EqualFunc(a, b, func(a, b limit.Lease) bool {
		return a.Name == b.Name && a.Key == b.Key && a.At.Equal(b.At) && a.Units == b.Units && a.Until.Equal(b.Until) &&
			a.Expires.Equal(b.Expires) && bytes.Equal(a.Record, b.Record)
	})
}

func TestFileComesBack(t *testing.T) {
	for _, leases := range [][]limit.Lease{nil, someLeases()} {
		data := encode(start, written, slices.Values(leases))
		got, err := decode(start, written, data)
		if err != nil || !same(got, leases) {
			t.Errorf("%+v\n%v, want\n%+v", got, err, leases)
		}
	}
}

// The time that has passed between two processes moves every time in the file.
func TestTimePasses(t *testing.T) {
	data := encode(start, written, slices.Values(someLeases()))
	for what, c := range map[string]struct {
		present moment
		passed  time.Duration
	}{
		"the same boot":                     {moment{written.wall + 5e9, written.boot, written.up + 5e9}, 5 * time.Second},
		"the same boot, the wall clock set": {moment{written.wall - 1e15, written.boot, written.up + 5e9}, 5 * time.Second},
		"the same boot, set forward":        {moment{written.wall + 1e15, written.boot, written.up + 5e9}, 5 * time.Second},
		"another boot":                      {moment{written.wall + 60e9, [16]byte{2}, 3}, time.Minute},
		"another boot, the clock set back":  {moment{written.wall - 1e15, [16]byte{2}, 3}, 0},
		"a boot that nobody knows":          {moment{written.wall + 60e9, [16]byte{}, 0}, time.Minute},
	} {
		now := start.Add(1000 * time.Hour) // of the new process
		got, err := decode(now, c.present, data)
		if err != nil {
			t.Fatal(err)
		}
		if at, want := got[0].At, now.Add(-c.passed-time.Second); !at.Equal(want) {
			t.Errorf("%s: the lease begins at %v, want %v", what, at, want)
		}
		if got[1].Expires != limit.Never {
			t.Errorf("%s: Never has become %v", what, got[1].Expires)
		}
	}
}

// A file that is cut at any byte, that has a byte more, or in which any bit is flipped, is not
// trusted.
func TestNothingButTheWholeFile(t *testing.T) {
	data := encode(start, written, slices.Values(someLeases()))
	for n := range data {
		if _, err := decode(start, written, data[:n]); err == nil {
			t.Errorf("a file cut at byte %d of %d is trusted", n, len(data))
		}
	}
	if _, err := decode(start, written, append(slices.Clone(data), 0)); err == nil {
		t.Error("a file with a byte more is trusted")
	}
	for bit := range 8 * len(data) {
		changed := slices.Clone(data)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := decode(start, written, changed); err == nil {
			t.Errorf("a file with bit %d flipped is trusted", bit)
		}
	}
}

// FuzzDecode gives the reader any bytes, and any bytes with a checksum that is right.
func FuzzDecode(f *testing.F) {
	whole := encode(start, written, slices.Values(someLeases()))
	f.Add(whole, false)
	f.Add(whole[:len(whole)-32], true)
	f.Add(whole[:headLength+3], true)
	f.Add([]byte(nil), false)
	f.Add([]byte(magic), true)
	f.Fuzz(func(t *testing.T, data []byte, sum bool) {
		if sum {
			data = sealed(data)
		}
		leases, err := decode(start, written, data)
		if err != nil {
			return
		}
		again, err := decode(start, written, encode(start, written, slices.Values(leases)))
		if err != nil || !same(again, leases) {
			t.Errorf("%+v\n%v, and once more\n%+v", leases, err, again)
		}
	})
}
