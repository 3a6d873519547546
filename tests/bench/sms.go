package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Commands of SMPP 3.4. An answer has the bit isAnswer too.
const (
	submitSM        = 0x04
	bindTransceiver = 0x09
	enquireLink     = 0x15
	isAnswer        = 0x80000000
)

// smsKinds limit short messages by number, and measure the gaps between them. Kannel sends them
// itself, so it takes them from a client of HTTP.
func smsKinds() (all []kind) {
	for _, perSecond := range []int{100, 1000} {
		all = append(all, gapKind("sms", "short messages", setting{protocol: "smpp", number: perSecond}, submits, kannel, shaper))
	}
	return all
}

// submits keeps inFlight messages between source and sink: for each that arrives, it sends one.
func submits(t *trial) ([]float64, error) {
	d := &delivery{rest: map[int][]byte{}}
	d.talk.arrived, d.talk.answered = d.arrived, d.answered
	start := func() (err error) {
		d.source, err = d.talk.connect(t.port, pdu(bindTransceiver, 1, "source\x00\x00\x00\x34\x00\x00\x00"))
		return err
	}
	if t.way.name == kannel.name { // it binds as soon as the sink listens
		d.kannel = fmt.Sprintf("http://127.0.0.1:%d/cgi-bin/sendsms?username=u&password=p&from=1&to=2&text=x", t.port)
		start = func() error { return nil }
	}
	s := begin(t.proxy)
	if err := d.talk.run(t.length(), start); err != nil {
		return nil, err
	}
	return gapFigures(t, d.times[min(1, len(d.times)):], s)
}

// delivery is a source and a sink of short messages.
type delivery struct {
	talk   talk
	source int    // the connection that sends; 0: Kannel does
	kannel string // the URL that takes a message; "": the source sends
	rest   map[int][]byte
	times  []time.Time
}

func (d *delivery) send(n int) error {
	for range n {
		if d.kannel == "" {
			if err := writeAll(d.source, pdu(submitSM, 2, "\x00\x00\x001\x00\x00\x002\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01x")); err != nil {
				return err
			}
			continue
		}
		answer, err := http.Get(d.kannel)
		if err != nil {
			return err
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusAccepted {
			return fmt.Errorf("smsbox answers %s: %s", answer.Status, text)
		}
	}
	return nil
}

// answered begins to send when the source is bound.
func (d *delivery) answered(fd int, bytes []byte) error {
	return d.each(fd, bytes, func(command, _ uint32) error {
		if command == bindTransceiver|isAnswer {
			return d.send(inFlight)
		}
		return nil
	})
}

func (d *delivery) arrived(fd int, bytes []byte, at time.Time) error {
	return d.each(fd, bytes, func(command, sequence uint32) error {
		if command&isAnswer != 0 {
			return nil
		}
		body := ""
		if command == submitSM || command == bindTransceiver {
			body = "1\x00"
		}
		if err := writeAll(fd, pdu(command|isAnswer, sequence, body)); err != nil {
			return err
		}
		switch {
		case command == submitSM:
			d.times = append(d.times, at)
			return d.send(1)
		case command == bindTransceiver && d.kannel != "":
			return d.send(inFlight)
		}
		return nil
	})
}

// each calls f for each message that is whole, and keeps the rest for the next read.
func (d *delivery) each(fd int, bytes []byte, f func(command, sequence uint32) error) error {
	b := append(d.rest[fd], bytes...)
	for len(b) >= 16 && len(b) >= int(binary.BigEndian.Uint32(b)) {
		if err := f(binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[12:])); err != nil {
			return err
		}
		b = b[max(16, binary.BigEndian.Uint32(b)):]
	}
	d.rest[fd] = b
	return nil
}

// pdu returns a message of SMPP whose status is 0.
func pdu(command, sequence uint32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	for _, v := range []uint32{command, 0, sequence} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, body...)
}
