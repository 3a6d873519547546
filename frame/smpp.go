package frame

import (
	"encoding/binary"
	"time"
)

// Bounds of a PDU, in bytes.
const (
	pduHeader = 16
	maxPDU    = 128 << 10
)

// Values of command_id and command_status (SMPP 5.0, 4.7.5).
const (
	bindReceiver         = 0x01
	bindTransmitter      = 0x02
	querySM              = 0x03
	submitSM             = 0x04
	deliverSM            = 0x05
	unbind               = 0x06
	replaceSM            = 0x07
	cancelSM             = 0x08
	bindTransceiver      = 0x09
	submitMulti          = 0x21
	dataSM               = 0x103
	broadcastSM          = 0x111
	queryBroadcastSM     = 0x112
	cancelBroadcastSM    = 0x113
	responseBit          = 1 << 31
	esmeMessageQueueFull = 0x14
	esmeThrottled        = 0x58
)

// An smppLink is an SMPP connection. Both sides may send requests.
type smppLink struct {
	up, down gatherer
	client   clientPDUs
	provider providerPDUs
	requests requests
}

func newSMPP() *smppLink {
	l := &smppLink{}
	l.provider.link = l
	l.up = gatherer{protocol: SMPP, format: &l.client}
	l.down = gatherer{protocol: SMPP, format: &l.provider}
	return l
}

func (l *smppLink) Up() Scanner   { return &l.up }
func (l *smppLink) Down() Scanner { return &l.down }

func (l *smppLink) Read(p []byte, m *Message)      { l.client.describe(p, m) }
func (l *smppLink) Room() bool                     { return !l.requests.full() }
func (l *smppLink) Sent(m *Message, now time.Time) { l.requests.add(m.Sequence, m.Tag, now) }
func (l *smppLink) Again()                         {}
func (l *smppLink) Refuse(*Message, bool) bool     { return true }
func (l *smppLink) Due() (m Message, ok bool)      { return m, false }
func (l *smppLink) InFlight() int                  { return l.requests.used }
func (l *smppLink) Drop(gone func(tag uint16))     { l.requests.drop(gone) }

func (l *smppLink) Expire(before time.Time, gone func(tag uint16)) { l.requests.expire(before, gone) }

// AppendRefusal implements Link: it appends a response with ESME_RTHROTTLED. A response with
// an error status has no body.
func (l *smppLink) AppendRefusal(dst []byte, m *Message, _ Refusal) []byte {
	dst = binary.BigEndian.AppendUint32(dst, pduHeader)
	dst = binary.BigEndian.AppendUint32(dst, m.Command|responseBit)
	dst = binary.BigEndian.AppendUint32(dst, esmeThrottled)
	return binary.BigEndian.AppendUint32(dst, m.Sequence)
}

// pduLength reads command_length, which counts its own four bytes.
func pduLength(p []byte) (int, Reason) {
	if len(p) < 4 {
		return pduHeader, fine
	}
	n := binary.BigEndian.Uint32(p)
	switch {
	case n < pduHeader:
		return 0, BadLength
	case n > maxPDU:
		return 0, TooLong
	}
	return int(n), fine
}

// clientPDUs is the format of what the client sends.
type clientPDUs struct {
	systemID [16]byte // as in the last bind
	idLength int
}

func (u *clientPDUs) length(p []byte) (int, Reason) { return pduLength(p) }

func (u *clientPDUs) describe(p []byte, m *Message) {
	describePDU(p, m)
	m.Refusable = m.Kind == Counted && m.Command != deliverSM // the client itself would have to refuse a deliver_sm
	m.Repeatable = m.Kind == Counted
	switch m.Command {
	case bindReceiver, bindTransmitter, bindTransceiver:
		id, _ := cString(p[pduHeader:])
		u.idLength = copy(u.systemID[:], id)
	}
	if u.idLength > 0 {
		m.SystemID = u.systemID[:u.idLength]
	}
}

// providerPDUs is the format of what the provider sends, which includes requests.
type providerPDUs struct{ link *smppLink }

func (d *providerPDUs) length(p []byte) (int, Reason) { return pduLength(p) }

func (d *providerPDUs) describe(p []byte, m *Message) {
	describePDU(p, m)
	if m.Kind != Response {
		return
	}
	if answersCounted(m.Command) {
		m.Tag, m.Answers = d.link.requests.remove(m.Sequence)
	}
	m.Throttle = throttleOf(p, m)
}

// answersCounted reports whether a response providerPDUs a counted message. A generic_nack may
// answer any request.
func answersCounted(command uint32) bool {
	return command == responseBit || countedCommand(command&^responseBit)
}

func countedCommand(command uint32) bool {
	switch command {
	case submitSM, deliverSM, dataSM, broadcastSM, submitMulti:
		return true
	}
	return false
}

func describePDU(p []byte, m *Message) {
	m.Command = binary.BigEndian.Uint32(p[4:])
	m.Sequence = binary.BigEndian.Uint32(p[12:])
	m.Kind = Control
	switch {
	case m.Command&responseBit != 0:
		m.Kind = Response
		m.Status = int(binary.BigEndian.Uint32(p[8:]))
	case countedCommand(m.Command):
		m.Kind, m.Cost, m.PDU = Counted, 1, p
		if m.Command == submitMulti {
			m.Cost = destinations(p[pduHeader:])
		}
	default:
		switch m.Command {
		case unbind, querySM, cancelSM, replaceSM, queryBroadcastSM, cancelBroadcastSM:
			m.InOrder = true
		}
	}
}
