package stats

// Carried is what the sessions of several listeners have carried.
type Carried struct {
	Open  int64  // sessions open now
	Ended uint64 // sessions
	Sent  [directions]VolumeReading
}

// Add adds what the sessions of a listener have carried.
func (c *Carried) Add(l *Listener) {
	c.Open += l.Open.Load()
	for r := range Results() {
		c.Ended += l.Ended[r].Load()
	}
	for d := range Directions() {
		c.Sent[d] = c.Sent[d].Plus(l.Sent[d].Read())
	}
}

// Total returns the totals: what waits, and what was lost and carried since the start. These are not the sums
// of the classes and listeners in force: a reload moves and removes some, and no total may follow.
func Total(items, bytes int64, lost *Lost, carried Carried) Totals {
	t := Totals{
		Sessions: carried.Open, Ended: carried.Ended, Sent: map[Direction]VolumeReading{},
		Dropped: lost.Dropped.read(), Refused: lost.Refused.read(),
		BacklogItems: items, BacklogBytes: bytes,
	}
	for d := range Directions() {
		t.Sent[d] = carried.Sent[d]
	}
	return t
}

// Plus returns the sum of two volumes.
func (v VolumeReading) Plus(o VolumeReading) VolumeReading {
	return VolumeReading{v.Bytes + o.Bytes, v.Packets + o.Packets, v.Requests + o.Requests, v.Messages + o.Messages, v.Connections + o.Connections, v.Tokens + o.Tokens}
}
