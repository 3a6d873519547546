package frame

import (
	"bytes"
	"encoding/binary"
)

// cString splits off the C-octet string that b begins with. If b has none, both results are
// nil.
func cString(b []byte) (s, rest []byte) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return nil, nil
	}
	return b[:i], b[i+1:]
}

// skip returns what follows the first n bytes; nothing if b is shorter.
func skip(b []byte, n int) []byte { return b[min(n, len(b)):] }

// describeSubmit reads the fields that every counted request begins with: service_type,
// source_addr_ton, source_addr_npi, source_addr. In submit_multi, number_of_dests follows; the
// provider charges that many messages. A number of 0, or none, costs one. The result is what
// follows data_coding.
func describeSubmit(b []byte, m *Message) (rest []byte) {
	_, b = cString(b)
	m.SourceAddr, b = cString(skip(b, 2))
	switch m.Command {
	case broadcastSM: // it has no recipient
		return nil
	case submitMulti:
		if len(b) > 0 {
			m.Cost = max(int64(b[0]), 1)
		}
		b = describeDestinations(b, m)
	default:
		m.Recipient, b = cString(skip(b, 2)) // dest_addr_ton, dest_addr_npi
	}
	if len(b) == 0 {
		return nil
	}
	m.ESMClass = b[:1]
	if m.Command == dataSM {
		b = skip(b, 2) // esm_class, registered_delivery
		m.DataCoding = oneByte(b)
		return skip(b, 1)
	}
	_, b = cString(skip(b, 3)) // esm_class, protocol_id, priority_flag, schedule_delivery_time
	_, b = cString(b)          // validity_period
	b = skip(b, 2)             // registered_delivery, replace_if_present_flag
	m.DataCoding = oneByte(b)
	return skip(b, 1)
}

// describeDestinations reads number_of_dests and the destinations of a submit_multi, and
// returns what follows them; nothing if they are cut. The message has a recipient only if
// there is a single one.
func describeDestinations(b []byte, m *Message) (rest []byte) {
	n := 0
	if len(b) > 0 {
		n, b = int(b[0]), b[1:]
	}
	for range n {
		if len(b) == 0 {
			return nil
		}
		flag := b[0]
		if b = b[1:]; flag == smeAddress {
			b = skip(b, 2) // dest_addr_ton, dest_addr_npi
		}
		var to []byte
		if to, b = cString(b); n == 1 && flag == smeAddress {
			m.Recipient = to
		}
	}
	return b
}

// smeAddress is the dest_flag of an address; the other one is that of a distribution list.
const smeAddress = 1

// oneByte returns the first byte of b; nil if there is none.
func oneByte(b []byte) []byte { return b[:min(len(b), 1)] }

// throttleOf reads what a response of the provider says about the rate.
func throttleOf(p []byte, m *Message) (t Throttle) {
	t.Limited = isTooFast(uint32(m.Status))
	t.Refused = t.Limited
	b := p[pduHeader:]
	switch m.Command &^ responseBit {
	case submitSM, deliverSM, dataSM, broadcastSM, bindReceiver, bindTransmitter, bindTransceiver:
		if len(b) > 0 { // an error has no body
			_, b = cString(b) // skips message_id or system_id
		}
	case submitMulti:
		_, b = cString(b)
		var limited bool
		if limited, b = skipUnsuccessful(b); limited {
			t.Limited, t.Refused = true, false // it has accepted the others
		}
	case querySM, queryBroadcastSM:
		return t
	}
	if state, ok := congestion(b); ok {
		t.Congestion = state + 1
	}
	return t
}

// isTooFast reports whether a command_status means that the client sends too fast.
func isTooFast(status uint32) bool {
	return status == esmeThrottled || status == esmeMessageQueueFull
}

// skipUnsuccessful skips the list of no_unsuccess destinations. It reports whether the status
// of one of them means that the client sends too fast.
func skipUnsuccessful(b []byte) (limited bool, rest []byte) {
	if len(b) == 0 {
		return false, nil
	}
	n, b := int(b[0]), b[1:]
	for range n {
		_, b = cString(skip(b, 2)) // dest_addr_ton, dest_addr_npi, destination_addr
		if len(b) < 4 {
			return limited, nil
		}
		limited = limited || isTooFast(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	return limited, b
}

// congestionState is the tag of a TLV of one byte, 0 to 100 (SMPP 5.0, 4.8.4.18).
const congestionState = 0x0428

func congestion(tlvs []byte) (state uint8, ok bool) {
	for len(tlvs) >= 4 {
		tag, n := binary.BigEndian.Uint16(tlvs), int(binary.BigEndian.Uint16(tlvs[2:]))
		value := tlvs[4:]
		if n > len(value) {
			return 0, false
		}
		if tag == congestionState && n == 1 && value[0] <= 100 {
			return value[0], true
		}
		tlvs = value[n:]
	}
	return 0, false
}

// AppendUnbind appends an SMPP unbind with a sequence_number (SMPP 3.4, section 4.2).
func AppendUnbind(b []byte, sequence uint32) []byte {
	for _, field := range [...]uint32{pduHeader, unbind, 0, sequence} {
		b = binary.BigEndian.AppendUint32(b, field)
	}
	return b
}
