package entry

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// SOCKS5 is the server of a SOCKS connection (RFC 1928), with user and password (RFC 1929) if
// Users is set. It refuses the command BIND.
type SOCKS5 struct {
	Users     bool // the client must log in
	NoStreams bool // it refuses the command CONNECT
	Datagrams bool // it knows the command UDP ASSOCIATE
	state     socksState
	chosen    []byte // the answer to the methods, if it leaves with the answer to the request
}

// socksState is what the server waits for.
type socksState uint8

const (
	socksMethods socksState = iota
	socksLogin
	socksRequest
	socksOver
)

// What RFC 1928 and RFC 1929 name.
const (
	socksVersion  = 5
	loginVersion  = 1
	methodNone    = 0
	methodLogin   = 2
	methodRefused = 0xff
	commandDial   = 1
	commandRelay  = 3
	addressIPv4   = 1
	addressName   = 3
	addressIPv6   = 4

	socksGranted   = 0
	socksFailed    = 1
	socksDenied    = 2
	socksNetwork   = 3
	socksHost      = 4
	socksNotServed = 5
	socksNoCommand = 7
	socksNoAddress = 8
)

var (
	errSOCKS       = errors.New("it is not SOCKS version 5")
	errLogin       = errors.New("the SOCKS login is invalid")
	errNoLogin     = errors.New("the client offers no login")
	errCommand     = errors.New("the listener does not have this SOCKS command")
	errDestination = errors.New("the SOCKS request has no valid destination")
)

// Feed implements Entry.
func (s *SOCKS5) Feed(data []byte) (used int, step Step, err error) {
	switch s.state {
	case socksMethods:
		return s.begin(data)
	case socksLogin:
		return s.login(data)
	case socksRequest:
		return s.request(data)
	}
	return 0, Step{}, nil
}

// begin chooses how the client logs in, and reads the request if it has come, too. Then both answers
// leave together.
func (s *SOCKS5) begin(data []byte) (used int, step Step, err error) {
	used, step, err = s.methods(data)
	if s.state != socksRequest {
		return used, step, err
	}
	more, next, err := s.request(data[used:])
	switch {
	case more == 0:
		return used, step, nil
	case next.Reply != nil:
		next.Reply = append(step.Reply, next.Reply...)
	default:
		s.chosen = step.Reply
	}
	return used + more, next, err
}

// methods chooses how the client logs in.
func (s *SOCKS5) methods(data []byte) (used int, step Step, err error) {
	if len(data) > 0 && data[0] != socksVersion {
		return 0, Step{}, errSOCKS
	}
	if len(data) < 2 || len(data) < 2+int(data[1]) {
		return 0, Step{}, nil
	}
	used = 2 + int(data[1])
	wanted := byte(methodNone)
	if s.Users {
		wanted = methodLogin
	}
	for _, offered := range data[2:used] {
		if offered == wanted {
			s.state = socksRequest
			if s.Users {
				s.state = socksLogin
			}
			return used, Step{Reply: []byte{socksVersion, wanted}}, nil
		}
	}
	s.state = socksOver
	return used, Step{Reply: []byte{socksVersion, methodRefused}}, errNoLogin
}

// login reads the user and the password.
func (s *SOCKS5) login(data []byte) (used int, step Step, err error) {
	user, rest, enough := counted(data, 1)
	password, _, enough2 := counted(rest, 0)
	switch {
	case len(data) > 0 && data[0] != loginVersion:
		return 0, Step{}, errLogin
	case !enough || !enough2:
		return 0, Step{}, nil
	case len(user) == 0:
		return 0, Step{}, errLogin
	}
	s.state = socksRequest
	used = 1 + 1 + len(user) + 1 + len(password)
	return used, Step{Login: true, User: string(user), Password: string(password)}, nil
}

// counted returns the bytes behind their count, which is at data[at].
func counted(data []byte, at int) (bytes, rest []byte, enough bool) {
	if len(data) <= at || len(data) <= at+int(data[at]) {
		return nil, nil, false
	}
	end := at + 1 + int(data[at])
	return data[at+1 : end], data[end:], true
}

// request reads what the client wants, and where.
func (s *SOCKS5) request(data []byte) (used int, step Step, err error) {
	if len(data) < 4 {
		return 0, Step{}, nil
	}
	host, rest, enough, known := socksHostOf(data)
	switch {
	case data[0] != socksVersion || data[2] != 0:
		return 0, Step{}, errSOCKS
	case !known:
		s.state = socksOver
		return len(data), Step{Reply: socksReply(socksNoAddress, netip.AddrPort{})}, errDestination
	case !enough || len(rest) < 2:
		return 0, Step{}, nil
	}
	s.state = socksOver
	used = len(data) - len(rest) + 2
	port := binary.BigEndian.Uint16(rest)
	switch {
	case data[1] == commandDial && !s.NoStreams:
		to, ok := host.destination(port)
		if !ok {
			return used, Step{Reply: socksReply(socksNoAddress, netip.AddrPort{})}, errDestination
		}
		return used, Step{To: to}, nil
	case data[1] == commandRelay && s.Datagrams:
		return used, Step{Relay: true, From: netip.AddrPortFrom(host.addr.Unmap(), port)}, nil
	}
	return used, Step{Reply: socksReply(socksNoCommand, netip.AddrPort{})}, errCommand
}

// socksTarget is a host as SOCKS has it: an address, or a name if that is invalid.
type socksTarget struct {
	addr netip.Addr
	name []byte
}

// destination returns the host with a port, if that is a valid destination.
func (h socksTarget) destination(port uint16) (Destination, bool) {
	if h.addr.IsValid() {
		return Destination{Addr: h.addr.Unmap(), Port: port}, port != 0
	}
	return DestinationOf(string(h.name), port)
}

// socksHostOf returns the host in a request or in the header of a datagram, and the bytes after
// it. known says that its type is known.
func socksHostOf(data []byte) (host socksTarget, rest []byte, enough, known bool) {
	size := 0
	switch data[3] {
	case addressIPv4:
		size = 4
	case addressIPv6:
		size = 16
	case addressName:
		host.name, rest, enough = counted(data, 4)
		return host, rest, enough, true
	default:
		return host, nil, false, false
	}
	if len(data) < 4+size {
		return host, nil, false, true
	}
	host.addr, _ = netip.AddrFromSlice(data[4 : 4+size])
	return host, data[4+size:], true, true
}

// LoggedIn implements Entry.
func (s *SOCKS5) LoggedIn(ok bool) []byte {
	if ok {
		return []byte{loginVersion, 0}
	}
	s.state = socksOver
	return []byte{loginVersion, 1}
}

// Connected implements Entry.
func (s *SOCKS5) Connected(local netip.AddrPort) []byte {
	return append(s.chosen, socksReply(socksGranted, local)...)
}

// Refused implements Entry.
func (s *SOCKS5) Refused(why Refusal) []byte {
	code := byte(socksFailed)
	switch why {
	case Denied:
		code = socksDenied
	case Unreachable:
		code = socksNetwork
	case Unknown:
		code = socksHost
	case NotServed:
		code = socksNotServed
	case NoCommand:
		code = socksNoCommand
	}
	return append(s.chosen, socksReply(code, netip.AddrPort{})...)
}

// socksReply returns a reply with an address of the server. If that is not valid, the reply has
// 0.0.0.0:0.
func socksReply(code byte, local netip.AddrPort) []byte {
	return appendSOCKS([]byte{socksVersion, code, 0}, local)
}

// appendSOCKS appends an address with its type and its port. An invalid one is 0.0.0.0.
func appendSOCKS(to []byte, at netip.AddrPort) []byte {
	addr := at.Addr().Unmap().WithZone("")
	if !addr.IsValid() {
		addr = netip.IPv4Unspecified()
	}
	kind := byte(addressIPv4)
	if addr.Is6() {
		kind = addressIPv6
	}
	return binary.BigEndian.AppendUint16(append(append(to, kind), addr.AsSlice()...), at.Port())
}
