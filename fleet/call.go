package fleet

import (
	"fmt"
	"time"
)

// A Stamp is a time of the store's clock: microseconds since 1970.
type Stamp int64

// Add returns s+d.
func (s Stamp) Add(d time.Duration) Stamp { return s + Stamp(d.Microseconds()) }

// Sub returns s-o.
func (s Stamp) Sub(o Stamp) time.Duration { return time.Duration(s-o) * time.Microsecond }

// An Op is what a Call asks for.
type Op string

const (
	Take  Op = "take"  // units of a bucket
	Back  Op = "back"  // return units of a window that a Take has got
	Beat  Op = "beat"  // nothing: the member is there
	Pause Op = "pause" // the provider has said "too fast": nobody gets anything of the key for a time; of the class, if the key is ""
	Move  Op = "move"  // an item has left too late for its slot: all slots of the class that follow move by so much
	Leave Op = "leave" // the member is gone, and has no share any more
	Keep  Op = "keep"  // nothing of the store: a ledger keeps the Debt of the Key, of Wanted units for Lasts. With 0 units it forgets that debt
	Ping  Op = "ping"  // whether the store can be written to, as a Take has to; nothing changes
)

// A Call is one request to the store. All its numbers are below 2^53.
type Call struct {
	Op     Op
	Class  *Class
	Key    string // of the bucket; "" is that of the class itself
	Member string

	// Of the member.
	Seq    int64         // grows with each call of a member to a class; the store ignores what is older about the member itself. 0: the call says nothing of it
	Fenced bool          // the member has seen that the store's clock jumped
	Sent   Stamp         // when the member sends, by the store's clock as it knows it; 0: it does not know
	Grace  time.Duration // how long after Sent the member counts as silent
	Share  int64         // what the member knows to be its share, in millionths
	Heard  int64         // the last pause of a key that the member has heard of
	Fence  time.Duration // how long what others hold goes on to count if the store has lost it; 0: as the class says

	// Of the bucket.
	Number int64         // of this Take, of this member and bucket. A number that comes again gets the same units, and moves no slot again
	Wanted int64         // units; of a Pause its length in microseconds, and of a Move by how much
	Need   int64         // fewer units than this are of no use; 0: the units wanted have left already, or nothing waits
	Lead   time.Duration // how long an answer takes: no slot begins sooner, unless the burst allows it

	// Of a window.
	From, To Stamp         // its bounds by the calendar; 0: the store computes them. A Back has the First of the grant
	Known    int64         // how many of its units the member has seen used
	Lasts    time.Duration // for how long they still count
	Spent    []Use         // what the member has used without asking, and what no call that was answered has told

	at time.Time // when it was sent, by the local clock
}

// A Use is what has left without asking.
type Use struct {
	Units int64
	Age   time.Duration // how long ago the last of them left
}

// numbers returns the numeric arguments of the script, in its order. The two of each Use are the last ones.
func (c *Call) numbers() []int64 {
	t, own := c.Class.timing(), c.Class.ownTiming()
	fence := c.Fence
	if fence == 0 {
		fence = own.horizon + own.transit
	}
	period := periodOf(c.Class.Rate)
	fenced := int64(0)
	if c.Fenced {
		fenced = 1
	}
	n := []int64{
		c.Seq, fenced, int64(c.Sent), c.Grace.Microseconds(), c.Share,
		own.horizon.Microseconds(), fence.Microseconds(), t.hold.Microseconds(), t.recovery.Microseconds(), t.turn.Microseconds(),
		c.Number, int64(c.Class.Algorithm), c.Wanted, c.Need, c.Lead.Microseconds(),
		period.quo, period.rem, period.parts, c.Class.depth().Microseconds(),
		c.Class.Limit(), c.Class.Window.Microseconds(), c.Class.offset(), int64(c.From), int64(c.To),
		c.Known, c.Lasts.Microseconds(), c.Heard,
	}
	for _, use := range c.Spent {
		n = append(n, use.Units, use.Age.Microseconds())
	}
	return n
}

// A Reply is the store's answer.
type Reply struct {
	Now     Stamp
	Took    time.Duration // how long the store has computed since; 0: nobody knows
	Members int64
	Share   int64 // of the member, in millionths
	Silent  int64 // of those known members together that may send without asking: no other member gets them
	Recover Stamp // until then the store does not know how much of its windows is used
	Pause   Stamp // until then nobody gets anything

	// A pause of a key: of the one that the call asks for, or of the next that the member has not heard of.
	Heard      int64  // its number
	Paused     string // the key; "": there is none
	PausedTill Stamp  // until then nobody gets anything of it

	// Units is how many the member gets. The unit i of a block of slots may leave at
	// First + Rem/parts microseconds + i*Span/Units periods. The units of a window may leave at once, until Till.
	Units int64
	First Stamp
	Rem   int64
	Span  int64
	Till  Stamp // with 0 units: when to ask again; of slots: what Moved was when they were granted

	Moved Stamp // by how much slots of the class have moved so far

	Used int64 // of the window
	Line int64 // how many members wait for their turn

	// The shortest and the longest horizon of all members, in microseconds.
	Shortest, Longest int64
}

// replyFields is how many numbers the script returns.
const replyFields = 19

// replyOf makes an answer of the numbers and the key that the script returns.
func replyOf(n []int64, key string) (Reply, error) {
	if len(n) != replyFields {
		return Reply{}, fmt.Errorf("an answer has %d numbers, want %d", len(n), replyFields)
	}
	return Reply{
		Now: Stamp(n[0]), Members: n[1], Share: n[2], Recover: Stamp(n[3]), Pause: Stamp(n[4]),
		Units: n[5], First: Stamp(n[6]), Rem: n[7], Span: n[8], Till: Stamp(n[9]), Used: n[10], Line: n[11],
		Heard: n[12], PausedTill: Stamp(n[13]), Shortest: n[14], Longest: n[15], Paused: key,
		Took: time.Duration(n[16]) * time.Microsecond, Silent: n[17], Moved: Stamp(n[18]),
	}, nil
}
