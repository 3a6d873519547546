package frame

import (
	"encoding/binary"
	"unicode/utf8"
)

// Segments returns in how many parts the text of a counted PDU of SMPP is sent as SMS: at least
// 1. A PDU that says itself that it is a part is one: by a user data header with the reference
// of a concatenated message, or by the TLVs sar_*.
//
// data_coding says how the provider sends the text. With 0 each octet is a character of the
// GSM alphabet (3GPP TS 23.038), unpacked, as in Kannel. With 1 and 3 the text is ASCII or
// Latin-1, and is sent in the GSM alphabet if that has all its characters, else in UCS-2. With
// 6 and 7 (Cyrillic, Hebrew) and 8 it is sent in UCS-2. The values above 15 are those of GSM.
// With all others it is sent as octets.
func Segments(pdu []byte) int64 {
	s, ok := smsOf(pdu)
	if !ok || s.isPart {
		return 1
	}
	switch alphabet := alphabetOf(s.coding); {
	case alphabet == ucs2 && s.coding == 8 || alphabet == ucs2 && s.coding > 15:
		return s.parts(len(s.text)/2, 2, func(i int) bool { return s.text[2*i]&0xfc == 0xd8 })
	case alphabet == ucs2:
		return s.parts(len(s.text), 2, nil)
	case alphabet == octets:
		return s.parts(len(s.text), 1, nil)
	case s.coding == 1 || s.coding == 3:
		return s.latinParts()
	}
	return s.septetParts(s.text)
}

// An sms is what matters of a PDU for its parts.
type sms struct {
	coding byte
	header int // octets of its user data header, with the length; 0: it has none
	text   []byte
	isPart bool
}

// Tags of TLVs (SMPP 5.0, 4.8.4).
const (
	sarTotalSegments = 0x020e
	sarSegment       = 0x020f
	messagePayload   = 0x0424
)

// smsOf reads a PDU; false if it has no text.
func smsOf(pdu []byte) (s sms, ok bool) {
	if len(pdu) < pduHeader {
		return s, false
	}
	command := binary.BigEndian.Uint32(pdu[4:])
	if !countedCommand(command) {
		return s, false
	}
	says, rest := readSubmit(pdu)
	if len(says.DataCoding) == 0 {
		return s, false
	}
	s.coding = says.DataCoding[0]
	if command != dataSM { // sm_default_msg_id, sm_length, short_message
		rest = skip(rest, 1)
		if len(rest) == 0 {
			return s, false
		}
		n := min(int(rest[0]), len(rest)-1)
		s.text, rest = rest[1:1+n], rest[1+n:]
	}
	s.readTLVs(rest)
	if says.ESMClass[0]&0x40 != 0 {
		s.cutHeader()
	}
	return s, true
}

// readTLVs reads the parameters behind the text.
func (s *sms) readTLVs(tlvs []byte) {
	total, segment := false, false
	for len(tlvs) >= 4 {
		tag, n := binary.BigEndian.Uint16(tlvs), int(binary.BigEndian.Uint16(tlvs[2:]))
		value := tlvs[4:]
		if n > len(value) {
			break
		}
		switch tag {
		case sarTotalSegments:
			total = n == 1 && value[0] > 1
		case sarSegment:
			segment = true
		case messagePayload:
			if len(s.text) == 0 {
				s.text = value[:n]
			}
		}
		tlvs = value[n:]
	}
	s.isPart = total && segment
}

// cutHeader cuts the user data header (3GPP TS 23.040, 9.2.3.24) off the text.
func (s *sms) cutHeader() {
	if len(s.text) == 0 || int(s.text[0])+1 > len(s.text) {
		return
	}
	s.header = int(s.text[0]) + 1
	elements := s.text[1:s.header]
	s.text = s.text[s.header:]
	for len(elements) >= 2 {
		if id := elements[0]; id == 0x00 || id == 0x08 { // concatenated, with a reference of 8 or 16 bits
			s.isPart = true
		}
		elements = skip(elements, 2+int(elements[1]))
	}
}

// An alphabet is how a text is sent.
type alphabet uint8

const (
	septets alphabet = iota // the GSM alphabet
	octets
	ucs2
)

// alphabetOf returns the alphabet of a data_coding.
func alphabetOf(coding byte) alphabet {
	switch {
	case coding == 0, coding == 1, coding == 3:
		return septets
	case coding == 6, coding == 7, coding == 8:
		return ucs2
	case coding < 0x10:
		return octets
	case coding < 0x80: // general data coding
		return [...]alphabet{septets, octets, ucs2, septets}[coding>>2&3]
	case coding >= 0xf0: // message class
		return [...]alphabet{septets, octets}[coding>>2&1]
	case coding >= 0xe0: // message waiting
		return ucs2
	case coding >= 0xc0:
		return septets
	}
	return octets
}

// Octets of a short message, and those that a header needs for the reference of its parts.
const (
	smsOctets       = 140
	concatElement   = 5 // in a header
	headerOfConcats = 6 // with the length
)

// room returns how many octets a part of several has room for, and how many the only part has.
// A header may be longer than an SMS.
func (s *sms) room() (each, single int) {
	single = max(smsOctets-s.header, 0)
	if s.header > 0 {
		return max(single-concatElement, 1), single
	}
	return single - headerOfConcats, single
}

// parts returns the parts of n units of so many octets. pairs reports whether a unit belongs
// into the same part as the next one; it may be nil.
func (s *sms) parts(n, octets int, pairs func(i int) bool) int64 {
	each, single := s.room()
	return split(n, max(each/octets, 2), single/octets, pairs)
}

// septetParts returns the parts of characters of the GSM alphabet. An escape belongs to the
// character behind it.
func (s *sms) septetParts(text []byte) int64 {
	each, single := s.room()
	return split(len(text), max(each*8/7, 2), single*8/7, func(i int) bool {
		escapes := 0
		for ; i >= 0 && text[i] == gsmEscape; i-- {
			escapes++
		}
		return escapes%2 == 1
	})
}

// split returns in how many parts n units are sent, if each part has room for so many, and a
// single one for more.
func split(n, each, single int, pairs func(i int) bool) (parts int64) {
	if n <= single {
		return 1
	}
	for at := 0; at < n; parts++ {
		at += each
		if at < n && pairs != nil && pairs(at-1) {
			at--
		}
	}
	return parts
}

const gsmEscape = 0x1b

// latinParts returns the parts of a text in ASCII or Latin-1.
func (s *sms) latinParts() int64 {
	gsm := make([]byte, 0, 2*len(s.text))
	for _, c := range s.text {
		switch latinInGSM[c] {
		case 0:
			return s.parts(len(s.text), 2, nil)
		case 2:
			gsm = append(gsm, gsmEscape)
		}
		gsm = append(gsm, ' ')
	}
	return s.septetParts(gsm)
}

// latinInGSM says how many septets a character of Latin-1 takes in the GSM alphabet; 0 if the
// alphabet does not have it (3GPP TS 23.038, 6.2.1).
var latinInGSM = func() (septets [256]byte) {
	const basic = "@£$¥èéùìòÇ\nØø\rÅå_ÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
	const extended = "\f^{}\\[~]|"
	for n, text := range map[byte]string{1: basic, 2: extended} {
		for len(text) > 0 {
			r, size := utf8.DecodeRuneInString(text)
			septets[byte(r)] = n
			text = text[size:]
		}
	}
	return septets
}()
