package frame_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"shaper/frame"
)

// A session gives the scanner what it has read, and treats as many bytes as the scanner says.
// It gives the remaining bytes again, with new ones behind them.
func ExampleScanner() {
	link := frame.NewLink(frame.Settings{Protocol: frame.HTTP})
	up := link.Up()
	buf := []byte("POST /charges?x=1 HTTP/1.1\r\nHost: api.example:443\r\nContent-Length: 5\r\n\r\nhel")
	for len(buf) > 0 {
		n, event, err := up.Next(buf)
		if err != nil {
			fmt.Println("the session ends:", err)
			return
		}
		switch event {
		case frame.More, frame.Hold: // a session reads on, or waits for an answer
			return
		case frame.Whole, frame.Head:
			m := up.Message()
			fmt.Printf("%v, costs %d: %s %s at %s\n", m.Kind, m.Cost, m.Method, m.Path, m.Host)
			link.Sent(m, time.Now()) // once its class lets it leave
		case frame.Body:
			fmt.Printf("%q goes on at once, and %d bytes may without being looked at\n", buf[:n], up.Opaque())
		}
		buf = buf[n:]
	}
	// Output:
	// counted, costs 1: POST /charges at api.example
	// "hel" goes on at once, and 2 bytes may without being looked at
}

// The class of a submit_sm may depend on its sender. The protocol determines how it is
// refused.
func ExampleLink() {
	link := frame.NewLink(frame.Settings{Protocol: frame.SMPP})
	up, down := link.Up(), link.Down()
	bind := "\x00\x00\x00\x19\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01acme\x00\x00\x00\x34\x00"
	submit := "\x00\x00\x00\x18\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x02\x00\x05\x00otp\x00\x00"
	for _, pdu := range []string{bind, submit} {
		if _, event, err := up.Next([]byte(pdu)); event != frame.Whole {
			fmt.Println(event, err)
			return
		}
		m := up.Message()
		fmt.Printf("%v, from %q of %q\n", m.Kind, m.Submit().SourceAddr, m.SystemID)
	}
	m := *up.Message()
	fmt.Printf("refused: %x\n", link.AppendRefusal(nil, &m, frame.Refusal{}))

	link.Sent(&m, time.Now())
	fmt.Println("in flight:", link.InFlight())
	if _, event, err := down.Next([]byte("\x00\x00\x00\x10\x80\x00\x00\x04\x00\x00\x00\x58\x00\x00\x00\x02")); event != frame.Whole {
		fmt.Println(event, err)
		return
	}
	fmt.Printf("answers: %v, too fast: %v, in flight: %d\n", down.Message().Answers, down.Message().Throttle.Limited, link.InFlight())
	// Output:
	// control, from "" of "acme"
	// counted, from "otp" of "acme"
	// refused: 00000010800000040000005800000002
	// in flight: 1
	// answers: true, too fast: true, in flight: 0
}

// A 429 comes in its turn among the responses.
func ExampleLink_refuse() {
	link := frame.NewLink(frame.Settings{Protocol: frame.HTTP})
	get := []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, event, err := link.Up().Next(get); event != frame.Whole {
		fmt.Println(event, err)
		return
	}
	link.Sent(link.Up().Message(), time.Now())
	if _, event, err := link.Up().Next(get); event != frame.Whole {
		fmt.Println(event, err)
		return
	}
	fmt.Println("the second may be answered at once:", link.Refuse(link.Up().Message(), true))

	_, event, _ := link.Down().Next([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
	fmt.Println("the first is answered:", event)
	if m, ok := link.Due(); ok {
		refusal := link.AppendRefusal(nil, &m, frame.Refusal{
			Wait: 2300 * time.Millisecond, Policy: "acme", Quota: 30, Window: time.Second,
		})
		fmt.Print(strings.ReplaceAll(string(refusal), "\r\n", "\n"))
	}
	// Output:
	// the second may be answered at once: false
	// the first is answered: whole
	// HTTP/1.1 429 Too Many Requests
	// Retry-After: 3
	// RateLimit-Policy: "acme";q=30;w=1
	// RateLimit: "acme";r=0;t=3
	// X-RateLimit-Limit: 30
	// X-RateLimit-Remaining: 0
	// X-RateLimit-Reset: 3
	// Content-Length: 0
}

// If two parties might read a message in different ways, the session ends. The reason can be
// counted.
func ExampleError() {
	link := frame.NewLink(frame.Settings{Protocol: frame.HTTP})
	_, _, err := link.Up().Next([]byte("POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"))
	var wrong *frame.Error
	if errors.As(err, &wrong) {
		fmt.Println(wrong)
		fmt.Println(wrong.Reason)
	}
	// Output:
	// http: both-lengths at byte 0
	// both-lengths
}
