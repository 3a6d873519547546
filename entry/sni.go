package entry

import (
	"errors"
	"net/netip"

	"golang.org/x/crypto/cryptobyte"
)

// SNI reads the name of the server from the ClientHello of TLS (RFC 6066, section 3; RFC 8446,
// section 4.1.2). It uses no bytes: the server gets all of them.
type SNI struct {
	Port uint16 // of every destination
	over bool   // it reads nothing more
}

// Of TLS (RFC 8446, sections 4, 5.1 and 6).
const (
	recordHandshake  = 22
	recordHeader     = 5
	maxRecord        = 1 << 14
	handshakeHello   = 1
	handshakeHeader  = 4
	extensionName    = 0
	nameOfHost       = 0
	alertUnnamed     = "\x15\x03\x01\x00\x02\x02\x70" // unrecognized_name
	alertUnreachable = "\x15\x03\x01\x00\x02\x02\x50" // internal_error
)

var (
	errTLS    = errors.New("it is not the ClientHello of TLS")
	errLong   = errors.New("the ClientHello is too long")
	errNoName = errors.New("the ClientHello has no valid name of a server")
)

// Feed implements Entry.
func (s *SNI) Feed(data []byte) (used int, step Step, err error) {
	if s.over {
		return 0, Step{}, nil
	}
	hello, whole, err := helloIn(data)
	switch {
	case err != nil:
		return 0, Step{}, err
	case !whole && len(data) >= MaxEntry:
		return 0, Step{}, errLong
	case !whole:
		return 0, Step{}, nil
	}
	s.over = true
	to, ok := DestinationOf(nameIn(hello), s.Port)
	if !ok || to.Name == "" {
		return 0, Step{Reply: []byte(alertUnnamed)}, errNoName
	}
	return 0, Step{To: to}, nil
}

// helloIn puts the ClientHello together, which may be in several records.
func helloIn(data []byte) (hello []byte, whole bool, err error) {
	for len(data) > 0 {
		if data[0] != recordHandshake || len(data) > 1 && data[1] != 3 {
			return nil, false, errTLS
		}
		if len(data) < recordHeader {
			break
		}
		size := int(data[3])<<8 | int(data[4])
		if size == 0 || size > maxRecord {
			return nil, false, errTLS
		}
		hello = append(hello, data[recordHeader:min(recordHeader+size, len(data))]...)
		if len(hello) > 0 && hello[0] != handshakeHello {
			return nil, false, errTLS
		}
		if len(hello) >= handshakeHeader {
			end := handshakeHeader + (int(hello[1])<<16 | int(hello[2])<<8 | int(hello[3]))
			if end > MaxEntry {
				return nil, false, errLong
			}
			if len(hello) >= end {
				return hello[handshakeHeader:end], true, nil
			}
		}
		data = data[min(recordHeader+size, len(data)):]
	}
	return nil, false, nil
}

// nameIn returns the name in a ClientHello without its header; "" if it is not valid, or has not
// exactly one name.
func nameIn(hello []byte) string {
	s := cryptobyte.String(hello)
	var skipped, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&skipped) || !s.ReadUint16LengthPrefixed(&skipped) || !s.ReadUint8LengthPrefixed(&skipped) ||
		!s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return ""
	}
	name, found := "", false
	for !extensions.Empty() {
		var kind uint16
		var body cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&body) || kind == extensionName && found {
			return ""
		}
		if kind == extensionName {
			name, found = hostIn(body), true
		}
	}
	return name
}

// hostIn returns the host in the extension server_name, which has exactly one.
func hostIn(body cryptobyte.String) string {
	var list, host cryptobyte.String
	var kind uint8
	if !body.ReadUint16LengthPrefixed(&list) || !body.Empty() || !list.ReadUint8(&kind) || kind != nameOfHost || !list.ReadUint16LengthPrefixed(&host) || !list.Empty() {
		return ""
	}
	return string(host)
}

// LoggedIn implements Entry. Nobody logs in.
func (s *SNI) LoggedIn(bool) []byte { return nil }

// Connected implements Entry. The server answers.
func (s *SNI) Connected(netip.AddrPort) []byte { return nil }

// Refused implements Entry.
func (s *SNI) Refused(why Refusal) []byte {
	if why == Denied || why == Unknown {
		return []byte(alertUnnamed)
	}
	return []byte(alertUnreachable)
}
