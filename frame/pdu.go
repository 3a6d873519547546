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

// destinations returns how many messages the provider charges for the body of a submit_multi:
// number_of_dests, which follows service_type, source_addr_ton, source_addr_npi and source_addr.
// A number of 0, or none, costs one.
func destinations(b []byte) int64 {
	_, b = cString(b)
	_, b = cString(skip(b, 2))
	if len(b) == 0 {
		return 1
	}
	return max(int64(b[0]), 1)
}

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
