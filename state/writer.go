package state

import (
	"iter"
	"maps"
	"slices"
	"time"

	"shaper/limit"
)

const (
	// mostKeys bounds the leases of keys, and with them the size of the file, which each write
	// writes whole: some 2 MB.
	mostKeys = 1 << 14
	// mostPerSecond bounds what is written in a second, in bytes, if the file is large.
	mostPerSecond = 32 << 20
	large         = 64 << 10
	// retryEvery is how long after a failure the next write comes.
	retryEvery = time.Second
	// logEvery is how often a failure that lasts is logged.
	logEvery = time.Minute
	// slow is how long a write takes until it is logged. Classes go on without it then.
	slow = time.Second
)

// run is the goroutine of the file.
func (f *File) run() {
	defer close(f.done)
	retry := time.NewTimer(retryEvery)
	defer retry.Stop()
	for !f.turn() {
		if f.dirty {
			retry.Reset(retryEvery)
		}
		select {
		case <-f.wake:
		case <-retry.C:
		}
	}
}

// turn keeps what was asked, writes it, and answers. It reports whether that was the last turn.
func (f *File) turn() (last bool) {
	var granted []ask
	for asks := f.take(); len(asks) > 0; asks = f.take() { // whom keep refuses may ask for something else
		granted = append(granted, f.keep(asks)...)
	}
	if leases := f.closing(); leases != nil {
		f.forget(time.Now())
		f.write(slices.Values(slices.AppendSeq(*leases, maps.Values(f.firm))))
		return true
	}
	wrote := 0
	if f.dirty && time.Since(f.failed) >= retryEvery {
		f.forget(time.Now())
		wrote = f.write(slices.Values(slices.AppendSeq(slices.Collect(maps.Values(f.leases)), maps.Values(f.firm))))
	}
	now := time.Now()
	for _, a := range granted {
		a.answer(now, a.lease.Units)
	}
	if !f.dirty {
		for at, a := range f.unkept {
			delete(f.unkept, at)
			a.kept()
		}
	}
	if wrote > large {
		time.Sleep(time.Duration(wrote) * (time.Second / mostPerSecond))
	}
	return false
}

// take returns the asks that have come.
func (f *File) take() (asks []ask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asks, f.asks = f.asks, nil
	return asks
}

// closing returns what Close wants written last; nil if the file is not to be closed.
func (f *File) closing() *[]limit.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// keep puts leases in their places, and answers those for which there is no room. It returns
// the others that want an answer.
func (f *File) keep(asks []ask) (granted []ask) {
	for _, a := range asks {
		at, all := place{a.lease.Name, a.lease.Key}, f.leases
		if a.kept != nil {
			all = f.firm
		}
		if _, known := all[at]; !known && at.key != "" {
			if f.keys >= mostKeys {
				if a.answer != nil {
					a.answer(time.Now(), limit.NoRoom)
				}
				continue
			}
			f.keys++
		}
		all[at], f.dirty = a.lease, true
		if delete(f.unkept, at); a.kept != nil {
			f.unkept[at] = a
		}
		if a.answer != nil {
			granted = append(granted, a)
		}
	}
	return granted
}

// forget forgets the leases that make no difference any more.
func (f *File) forget(now time.Time) {
	for _, all := range []map[place]limit.Lease{f.leases, f.firm} {
		maps.DeleteFunc(all, func(at place, lease limit.Lease) bool {
			expired := !lease.Expires.After(now)
			if expired && at.key != "" {
				f.keys--
			}
			return expired
		})
	}
}

// write writes a whole file, notes how that went, and returns its length in bytes.
func (f *File) write(leases iter.Seq[limit.Lease]) int {
	data := encode(time.Now(), f.Clock.moment(), leases)
	watch := time.AfterFunc(slow, func() {
		f.Log.Error("the state file is not written yet: the disk is slow, and classes go on without it", "file", f.path, "for", slow)
	})
	err := f.disk.replace(f.path, data)
	watch.Stop()
	f.note(len(data), err)
	return len(data)
}

// note notes the outcome of a write, for Read and in the log.
func (f *File) note(length int, err error) {
	now := time.Now()
	f.record(now, length, err)
	f.dirty = err != nil
	switch {
	case err == nil && !f.failed.IsZero():
		f.failed, f.logged = time.Time{}, time.Time{}
		f.Log.Info("the state file is written again", "file", f.path)
	case err == nil:
	case now.Sub(f.logged) < logEvery:
		f.failed = now
	default:
		f.failed, f.logged = now, now
		f.Log.Error("cannot write the state file: classes go on, and a crash forgets what they use meanwhile", "file", f.path, "err", err)
	}
}

// record records the outcome of a write, for Read.
func (f *File) record(now time.Time, length int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.reading.Failures++
		f.reading.Error = err.Error()
		return
	}
	f.reading.Written, f.reading.Bytes, f.reading.Error = now, length, ""
}
