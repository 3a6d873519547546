package stats

// Total adds up all listeners and the classes without a parent. A class also counts what
// the classes below it count, so those are not added.
func Total(classes []ClassReading, listeners []ListenerReading) Totals {
	t := Totals{Sent: map[Direction]VolumeReading{}}
	for d := range Directions() {
		t.Sent[d] = VolumeReading{}
	}
	for _, c := range classes {
		if c.Parent == "" {
			t.addClass(c)
		}
	}
	for _, l := range listeners {
		for d, v := range l.Sent {
			t.Sent[d] = t.Sent[d].Plus(v)
		}
		t.Sessions += l.Open
		for _, n := range l.Ended {
			t.Ended += n
		}
	}
	return t
}

func (t *Totals) addClass(c ClassReading) {
	for r := range Reasons() {
		t.Dropped = t.Dropped.plus(c.Dropped[r])
		t.Refused = t.Refused.plus(c.Refused[r])
	}
	t.BacklogBytes += c.BacklogBytes
	t.BacklogItems += c.BacklogItems
}

// Plus returns the sum of two volumes.
func (v VolumeReading) Plus(o VolumeReading) VolumeReading {
	return VolumeReading{v.Bytes + o.Bytes, v.Packets + o.Packets, v.Requests + o.Requests, v.Messages + o.Messages, v.Connections + o.Connections, v.Tokens + o.Tokens}
}

func (l LossReading) plus(o LossReading) LossReading {
	return LossReading{l.Items + o.Items, l.Bytes + o.Bytes}
}
