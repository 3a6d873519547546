package frame

import "encoding/binary"

// A Submit is what rules and keys look at in a counted request of SMPP. A field is nil if the
// request does not have it.
type Submit struct {
	SourceAddr           []byte
	Recipient            []byte // destination_addr, if there is one
	ESMClass, DataCoding []byte // one byte each
}

// Submit reads a counted request of SMPP. For any other message it returns the zero Submit. It does
// not allocate: the fields point into PDU.
func (m *Message) Submit() (s Submit) {
	switch {
	case m.Described != nil:
		return m.Described.Submit
	case len(m.PDU) > 0:
		s, _ = readSubmit(m.PDU)
	}
	return s
}

// readSubmit reads a counted request. Each begins with service_type, source_addr_ton,
// source_addr_npi and source_addr; the destinations and esm_class follow. rest is what follows
// data_coding.
func readSubmit(pdu []byte) (s Submit, rest []byte) {
	command := binary.BigEndian.Uint32(pdu[4:])
	_, b := cString(pdu[pduHeader:])
	s.SourceAddr, b = cString(skip(b, 2))
	switch command {
	case broadcastSM: // it has no recipient
		return s, nil
	case submitMulti:
		s.Recipient, b = onlyDestination(b)
	default:
		s.Recipient, b = cString(skip(b, 2)) // dest_addr_ton, dest_addr_npi
	}
	if len(b) == 0 {
		return s, nil
	}
	s.ESMClass = b[:1]
	if command == dataSM {
		b = skip(b, 2) // esm_class, registered_delivery
	} else {
		_, b = cString(skip(b, 3)) // esm_class, protocol_id, priority_flag, schedule_delivery_time
		_, b = cString(b)          // validity_period
		b = skip(b, 2)             // registered_delivery, replace_if_present_flag
	}
	s.DataCoding = oneByte(b)
	return s, skip(b, 1)
}

// onlyDestination reads number_of_dests and the destinations of a submit_multi. rest is what follows
// them; nil if they are cut short. recipient is nil unless there is exactly one destination, and
// that is an address.
func onlyDestination(b []byte) (recipient, rest []byte) {
	n := 0
	if len(b) > 0 {
		n, b = int(b[0]), b[1:]
	}
	for range n {
		if len(b) == 0 {
			return nil, nil
		}
		flag := b[0]
		if b = b[1:]; flag == smeAddress {
			b = skip(b, 2) // dest_addr_ton, dest_addr_npi
		}
		var to []byte
		if to, b = cString(b); n == 1 && flag == smeAddress {
			recipient = to
		}
	}
	return recipient, b
}

// smeAddress is the dest_flag of an address; the other one is that of a distribution list.
const smeAddress = 1

// oneByte returns the first byte of b; nil if there is none.
func oneByte(b []byte) []byte { return b[:min(len(b), 1)] }
