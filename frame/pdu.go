package frame

import (
	"bytes"
	"encoding/binary"
)

// cString cuts the C-octet string that a body begins with; an empty rest where
// there is none.
func cString(b []byte) (s, rest []byte) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return nil, nil
	}
	return b[:i], b[i+1:]
}

// skip returns what is behind n bytes; nothing where there are not so many.
func skip(b []byte, n int) []byte { return b[min(n, len(b)):] }

// describeSubmit reads what all that is counted begins with: service_type,
// source_addr_ton, source_addr_npi, source_addr. submit_multi goes on with
// number_of_dests, which is what the provider charges; one that says none is
// counted as one, and so is one that ends before it.
func describeSubmit(b []byte, m *Message) {
	_, b = cString(b)
	m.SourceAddr, b = cString(skip(b, 2))
	if m.Command == submitMulti && len(b) > 0 {
		m.Cost = max(int64(b[0]), 1)
	}
}

// throttleOf reads from a response of the provider what it says about the rate.
func throttleOf(p []byte, m *Message) (t Throttle) {
	t.Limited = limits(uint32(m.Status))
	b := p[pduHeader:]
	switch m.Command &^ responseBit {
	case submitSM, deliverSM, dataSM, broadcastSM, bindReceiver, bindTransmitter, bindTransceiver:
		if len(b) > 0 { // else it is an error, without a body
			_, b = cString(b) // message_id, system_id
		}
	case submitMulti:
		_, b = cString(b)
		var limited bool
		if limited, b = unsuccessful(b); limited {
			t.Limited = true
		}
	case querySM, queryBroadcastSM:
		return t
	}
	if state, ok := congestion(b); ok {
		t.Congestion = state + 1
	}
	return t
}

// limits reports whether a status says that this is too fast.
func limits(status uint32) bool {
	return status == esmeThrottled || status == esmeMessageQueueFull
}

// unsuccessful skips no_unsuccess destinations with a status each, and reports
// whether one of these says that this is too fast.
func unsuccessful(b []byte) (limited bool, rest []byte) {
	if len(b) == 0 {
		return false, nil
	}
	n, b := int(b[0]), b[1:]
	for range n {
		_, b = cString(skip(b, 2)) // dest_addr_ton, dest_addr_npi, destination_addr
		if len(b) < 4 {
			return limited, nil
		}
		limited = limited || limits(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	return limited, b
}

// congestionState is a TLV of one byte, 0 to 100 (SMPP 5.0, 4.8.4.18).
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
