package frame

import "time"

// A Kind is what a limit makes of a message.
type Kind uint8

// Kinds.
const (
	Counted  Kind = iota // it waits for its class
	Control              // it costs nothing, and passes at once unless it is InOrder
	Response             // it costs nothing, passes at once, and answers something
)

var kindNames = [...]string{"counted", "control", "response"}

func (k Kind) String() string { return kindNames[k] }

// A Message is what is known of one from its bytes.
type Message struct {
	Kind Kind
	Cost int64 // in messages; 0 unless Counted

	InOrder   bool // though Control, it must not overtake what waits
	Refusable bool // the protocol can refuse it
	Close     bool // when it is refused, the connection ends behind the answer

	Command  uint32 // smpp: command_id
	Sequence uint32 // smpp: sequence_number
	Status   int    // of a response: command_status; status code

	Answers  bool // a request that was sent is answered, once this message has ended
	Throttle Throttle

	// Tag is the caller's, such as the number of a class. What Sent or Refuse is
	// given with one comes back with it: as the message that Answers, from Due,
	// from Expire and from Drop.
	Tag uint16

	// What rules look at; nil where there is none.
	Method, Path, Host   []byte
	SystemID, SourceAddr []byte
}

// A Throttle is what a response says about the rate.
type Throttle struct {
	Limited bool          // the provider refuses because of it
	Wait    time.Duration // for so long, if it says so from now on
	Until   time.Time     // until then, if it says so by the clock

	// Congestion is what SMPP 5.0 tells with each response as
	// congestion_state, plus one: 1 is idle, 101 is congested; 0 where it is not
	// told.
	Congestion uint8
}

// Pause returns for how long nothing should be sent; 0 where the provider does not
// say.
func (t Throttle) Pause(now time.Time) time.Duration {
	if t.Until.IsZero() {
		return t.Wait
	}
	return max(t.Until.Sub(now), 0)
}

// A Refusal is what a client is told with "too fast".
type Refusal struct {
	Now    time.Time     // for Date; zero: none
	Wait   time.Duration // after which the same request would find room
	Policy string        // a name of the limit, for people; "": no RateLimit fields
	Quota  int64         // what the limit allows in each Window
	Window time.Duration
}
