package daemon

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tc"
	"shaper/unit"
)

// readClass reads the counters of a class, and what its policy says. waits is what waits in it and beneath it.
func readClass(c *shaper.Class, now time.Time, waits shaper.Waiting) stats.ClassReading {
	conf := c.Policy().Shown(now)
	r := c.Stats.Read()
	r.Name, r.Algorithm = conf.Name, string(conf.Algorithm)
	backlog := c.Backlog()
	r.BacklogItems, r.BacklogBytes = backlog.Items, backlog.Bytes
	r.Oldest, r.Drain = stats.Seconds(waits.Oldest), stats.Seconds(waits.Drain)
	r.Sessions = c.Sessions()
	if conf.Rate.Kind().OfMessages() {
		r.InFlight = c.InFlight()
		r.PausedUntil, r.Share = c.Provider().Signals(now)
		r.Learned, r.Retry = c.Provider().Learned(), c.Messages().Retry().Max
	}
	if r.Per, r.Keys = conf.Per.String(), c.Buckets().Keys(now); r.Per != "" {
		r.MaxKeys = conf.MaxKeys
	}
	r.Quotas = c.Status().Quotas(now)
	r.Parent, r.Priority, r.Weight = conf.Parent, conf.Priority, conf.Weight
	if shadow := c.Status().Shadow(now); shadow != nil {
		would := shadow.ReadShadow()
		r.Shadow = &would
	}
	r.Rate = readRate(conf.Rate)
	if limit := conf.Limit(); limit != conf.Rate {
		ceil := readRate(limit)
		r.Ceil = &ceil
	}
	if conf.Algorithm.HasBurst() {
		r.Burst = conf.Burst.String()
	}
	for _, l := range conf.Also {
		r.Also = append(r.Also, l.String())
	}
	r.WaitsFor = waits.For
	if conf.Algorithm.HasWindow() {
		r.Window = conf.Own().WindowText()
	}
	return r
}

func readRate(r unit.Rate) stats.RateReading {
	return stats.RateReading{Text: r.String(), PerSecond: r.PerSecond(), Unit: r.Kind().String()}
}

// kernelReading is what people see of the kernel part. Nobody changes it.
type kernelReading struct {
	classes []stats.ClassReading // what the kernel has counted for each class, all devices together
	kept    *stats.KeptReading   // how it was kept equal to the policy; nil if the policy keeps nothing there
}

// read returns a reading, and the zero one if the policy needs nothing of the kernel. To change the kernel may take
// seconds. For that long read returns the last reading, which may be that of the policy before, unless
// there is none yet.
func (k *kernel) read() (r kernelReading) {
	k.reading.Lock() // so that TryLock fails only for changes
	defer k.reading.Unlock()
	if !k.mu.TryLock() {
		if last := k.last.Load(); last != nil {
			return *last
		}
		k.mu.Lock()
	}
	defer k.mu.Unlock()
	switch {
	case k.netlink != nil && k.policy != nil:
		r = kernelReading{k.count(), k.readKept()}
		k.last.Store(&r)
	case k.off:
		r.kept = &stats.KeptReading{Error: tc.ErrNotPermitted.Error()}
	}
	return r
}

// count reads the counters of the classes, and adds up those of all devices. The sums never fall. The caller holds mu.
func (k *kernel) count() (all []stats.ClassReading) {
	k.beginCount()
	for _, section := range sectionsToKeep(k.policy) {
		d, err := k.netlink.Device(section.Device)
		if err != nil {
			continue // a device that does not exist counts nothing
		}
		leaving, arriving, err := k.netlink.Count(d, k.policy, section)
		if err != nil {
			k.log.Warn("cannot read the kernel's counters", "device", section.Device, "err", err)
			continue
		}
		k.take(way{section.Device, stats.Upstream}, leaving)
		k.take(way{section.Device, stats.Downstream}, arriving)
	}
	for _, class := range k.policy.Classes {
		if r := emptyReading(class); k.counted[class.Name].addTo(&r) {
			all = append(all, r)
		}
	}
	return all
}

// beginCount forgets what waited, and the classes that the policy no longer has.
func (k *kernel) beginCount() {
	for class, ways := range k.counted {
		if _, known := k.policy.Class(class); !known {
			delete(k.counted, class)
		}
		for _, c := range ways {
			c.current, c.last.Backlog, c.last.Queue = false, 0, 0
		}
	}
}

// take notes what a device has counted for each class in one direction.
func (k *kernel) take(w way, all map[string]tc.Counters) {
	for class, n := range all {
		if k.counted[class] == nil {
			k.counted[class] = counts{}
		}
		c := k.counted[class][w]
		if c == nil {
			c = &counted{}
			k.counted[class][w] = c
		}
		c.before.Bytes += lost(c.last.Bytes, n.Bytes)
		c.before.Packets += lost(c.last.Packets, n.Packets)
		c.before.Dropped += lost(c.last.Dropped, n.Dropped)
		c.before.Overlimits += lost(c.last.Overlimits, n.Overlimits)
		c.last, c.current = n, true
	}
}

// lost returns what a counter had if it has begun at 0 again since last.
func lost(last, n uint64) uint64 {
	if n < last {
		return last
	}
	return 0
}

// addTo adds the counts to the reading of a class, and reports whether the kernel still has one of them.
func (all counts) addTo(r *stats.ClassReading) (current bool) {
	for w, c := range all {
		addCounters(r, w.direction, c.before)
		addCounters(r, w.direction, c.last)
		current = current || c.current
	}
	return current
}

// readKept returns how the kernel was kept equal to the policy; nil if the policy keeps nothing
// there. The caller holds mu.
func (k *kernel) readKept() *stats.KeptReading {
	if len(sectionsToKeep(k.policy)) == 0 {
		return nil
	}
	kept := k.kept
	return &kept
}

// emptyReading returns the reading of a class that has counted nothing.
func emptyReading(class policy.Class) stats.ClassReading {
	r := new(stats.Class).Read()
	r.Name, r.Algorithm, r.Parent = class.Name, string(class.Algorithm), class.Parent
	r.Priority, r.Weight = class.Priority, class.Weight
	r.Rate = readRate(class.Rate)
	if limit := class.Limit(); limit != class.Rate {
		ceil := readRate(limit)
		r.Ceil = &ceil
	}
	return r
}

// addCounters adds what was counted in one direction.
func addCounters(r *stats.ClassReading, way stats.Direction, n tc.Counters) {
	sent := r.Sent[way]
	sent.Bytes += n.Bytes
	sent.Packets += n.Packets
	r.Sent[way] = sent
	lost := r.Dropped[stats.QueueFull]
	lost.Items += n.Dropped
	r.Dropped[stats.QueueFull] = lost
	r.Overlimits += n.Overlimits
	r.BacklogBytes += int64(n.Backlog)
	r.BacklogItems += int64(n.Queue)
}
