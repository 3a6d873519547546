package frame

import "time"

// A Kind says how a limit treats a message.
type Kind uint8

// The kinds of messages.
const (
	Counted  Kind = iota // waits for its class
	Control              // costs nothing, and passes at once unless it is InOrder
	Response             // costs nothing, passes at once, and answers something
)

var kindNames = [...]string{"counted", "control", "response"}

func (k Kind) String() string { return kindNames[k] }

// A Message is what its bytes say.
type Message struct {
	Kind Kind
	Cost int64 // in messages; 0 unless Counted

	InOrder   bool // it is Control, and must not overtake messages that wait
	Refusable bool // the protocol can refuse it
	// Repeatable says that a request may be sent again on the same connection if an answer
	// has Throttle.Refused and not Ends.
	Repeatable bool
	Close      bool // if it is refused, the connection ends after the refusal

	Command  uint32 // smpp: command_id
	Sequence uint32 // smpp: sequence_number
	Status   int    // of a response: the command_status or status code

	Answers bool // the end of this message answers a request that was sent
	Tunnel  bool // HTTP: what follows is not HTTP any more
	// Last says that nothing may follow an answer of HTTP: the connection ends with it, or it
	// answers no request, so that the client may take it for the answer to its next one.
	Last bool
	// Ends says that no request may follow an answer of HTTP soon: the connection ends with it, or
	// its body is too long to be thrown away.
	Ends     bool
	Throttle Throttle

	// Tag belongs to the caller, who may store the number of a class in it. A link returns the
	// Tag that Sent or Refuse was given: in the message that Answers, from Due, and in the
	// calls of gone.
	Tag uint16

	// What rules and keys look at; nil if the message does not say it. They may look at what
	// Submit reads, too.
	Method, Path, Host []byte
	Fields             []byte // http: the lines of its fields, each with its end
	SystemID           []byte

	// PDU is a counted request of SMPP. It is read only for those who ask for its Submit, because
	// most limits do not.
	PDU []byte

	Described *Description // what a message says that has no bytes; nil: its bytes say it
}

// A Description is what a message says that is described and has no bytes.
type Description struct {
	Units  int64 // what it costs; 0: it does not say
	Bytes  int64 // how long it is, with its body
	Submit Submit
}

// A Throttle is what a response says about the client's rate.
type Throttle struct {
	Limited bool // the provider refused the request because of the rate
	Refused bool // it refused all of it, for that reason alone

	// Congestion is congestion_state of SMPP 5.0 plus one: 1 means idle, and 101 means
	// congested. 0 means that the response does not say.
	Congestion uint8

	Wait  time.Duration // how long to wait, counted from now; 0: not said
	Until time.Time     // when the wait ends, if the provider gave a date
}

// Pause returns how long to send nothing; 0 if the provider does not say.
func (t Throttle) Pause(now time.Time) time.Duration {
	if t.Until.IsZero() {
		return t.Wait
	}
	return max(t.Until.Sub(now), 0)
}

// A Refusal is what a refused client is told.
type Refusal struct {
	Now    time.Time     // for the Date field; the zero time leaves it out
	Wait   time.Duration // how long until the same request would find room; the longest Duration stands for ever
	Policy string        // the name of the limit, for people; "" leaves out the RateLimit fields
	Quota  int64         // how much the limit allows in each Window
	Tokens bool          // Quota counts tokens, not requests
	Window time.Duration
	// Position is which place the request would have had in the queue, from 1; 0 leaves out what
	// is about the queue. Expected is how long it would have waited there; the longest Duration
	// stands for ever.
	Position int
	Expected time.Duration
}
