package entry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// MaxProxy is the size of the largest PROXY header that ParseProxy accepts, in bytes.
const MaxProxy = 4096

// Proxy is what a PROXY header tells. The zero Proxy tells no address: its sender speaks for
// itself, as health checks do, or does not know the address.
type Proxy struct {
	Source      netip.AddrPort // of the client
	Destination netip.AddrPort // to which the client has connected
}

// Errors of headers.
var (
	errNoHeader   = errors.New("it does not begin with a PROXY header")
	errTooLong    = fmt.Errorf("the PROXY header is longer than %d bytes", MaxProxy)
	errFirstLine  = errors.New("the line of the PROXY header is invalid")
	errBinary     = errors.New("the PROXY header of version 2 is invalid")
	errNotTold    = errors.New("the PROXY header is too short for its addresses")
	signature     = []byte("\r\n\r\n\x00\r\nQUIT\n")
	firstLine     = []byte("PROXY ")
	maxFirstLine  = 107 // bytes, with its end
	headSize      = 16  // bytes of version 2 before its addresses
	sizeOfFamily  = map[byte]int{0: 0, 1: 12, 2: 36, 3: 216}
	commandLocal  = byte(0x20)
	commandProxy  = byte(0x21)
	overStream    = byte(1)
	overDatagrams = byte(2)
)

// ParseProxy reads the PROXY header, of version 1 or 2, with which data begins (HAProxy,
// doc/proxy-protocol.txt). n is its size in bytes; 0 without an error: it is not all there
// yet. TLVs are skipped. An address of a unix socket, and one that the sender does not know,
// are not told.
func ParseProxy(data []byte) (h Proxy, n int, err error) {
	switch {
	case bytes.HasPrefix(data, signature):
		return parseBinary(data)
	case bytes.HasPrefix(data, firstLine):
		return parseLine(data)
	case bytes.HasPrefix(signature, data), bytes.HasPrefix(firstLine, data):
		return Proxy{}, 0, nil
	}
	return Proxy{}, 0, errNoHeader
}

// parseLine reads a header of version 1.
func parseLine(data []byte) (h Proxy, n int, err error) {
	line, _, found := bytes.Cut(data[:min(len(data), maxFirstLine)], []byte("\r\n"))
	if !found {
		if len(data) >= maxFirstLine {
			err = errFirstLine
		}
		return Proxy{}, 0, err
	}
	n = len(line) + 2
	fields := strings.Split(string(line[len(firstLine):]), " ")
	if fields[0] == "UNKNOWN" {
		return Proxy{}, n, nil
	}
	if len(fields) != 5 || fields[0] != "TCP4" && fields[0] != "TCP6" {
		return Proxy{}, 0, errFirstLine
	}
	v4 := fields[0] == "TCP4"
	var errs [2]error
	h.Source, errs[0] = toldAddress(fields[1], fields[3], v4)
	h.Destination, errs[1] = toldAddress(fields[2], fields[4], v4)
	if errors.Join(errs[:]...) != nil {
		return Proxy{}, 0, errFirstLine
	}
	return h, n, nil
}

// toldAddress reads an address of version 1.
func toldAddress(host, port string, v4 bool) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is4() != v4 || addr.Zone() != "" {
		return netip.AddrPort{}, errFirstLine
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strconv.FormatUint(p, 10) != port {
		return netip.AddrPort{}, errFirstLine
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(p)), nil
}

// parseBinary reads a header of version 2.
func parseBinary(data []byte) (h Proxy, n int, err error) {
	if len(data) < headSize {
		return Proxy{}, 0, nil
	}
	command, family, transport := data[12], data[13]>>4, data[13]&15
	told := int(binary.BigEndian.Uint16(data[14:]))
	n = headSize + told
	size, known := sizeOfFamily[family]
	switch {
	case command != commandLocal && command != commandProxy, !known, transport > overDatagrams:
		return Proxy{}, 0, errBinary
	case n > MaxProxy:
		return Proxy{}, 0, errTooLong
	case command == commandProxy && told < size:
		return Proxy{}, 0, errNotTold
	case len(data) < n:
		return Proxy{}, 0, nil
	case command == commandProxy && transport != 0:
		h = addressesOf(family, data[headSize:n])
	}
	return h, n, nil
}

// addressesOf reads the addresses of version 2, if they are of a family of IP.
func addressesOf(family byte, told []byte) (h Proxy) {
	size := map[byte]int{1: 4, 2: 16}[family]
	if size == 0 {
		return h
	}
	source, _ := netip.AddrFromSlice(told[:size])
	destination, _ := netip.AddrFromSlice(told[size : 2*size])
	ports := told[2*size:]
	h.Source = netip.AddrPortFrom(source.Unmap(), binary.BigEndian.Uint16(ports))
	h.Destination = netip.AddrPortFrom(destination.Unmap(), binary.BigEndian.Uint16(ports[2:]))
	return h
}

// AppendLine appends a header of version 1 to b. Addresses are those of one family: if either
// is IPv6, the other one is mapped. If either is not valid, the header tells none.
func (h Proxy) AppendLine(b []byte) []byte {
	family, source, destination := h.oneFamily()
	if family == 0 {
		return append(b, "PROXY UNKNOWN\r\n"...)
	}
	name := map[byte]string{1: "TCP4", 2: "TCP6"}[family]
	return fmt.Appendf(b, "PROXY %s %s %s %d %d\r\n", name, source, destination, h.Source.Port(), h.Destination.Port())
}

// AppendBinary appends a header of version 2 to b, for a stream or for datagrams. Its addresses
// are those of AppendLine.
func (h Proxy) AppendBinary(b []byte, datagrams bool) []byte {
	family, source, destination := h.oneFamily()
	transport := overStream
	switch {
	case family == 0:
		transport = 0
	case datagrams:
		transport = overDatagrams
	}
	b = append(append(b, signature...), commandProxy, family<<4|transport)
	b = binary.BigEndian.AppendUint16(b, uint16(sizeOfFamily[family]))
	if family == 0 {
		return b
	}
	b = append(append(b, source.AsSlice()...), destination.AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, h.Source.Port())
	return binary.BigEndian.AppendUint16(b, h.Destination.Port())
}

// oneFamily returns both addresses in the same family: 1 is IPv4, 2 is IPv6, and 0 is none.
func (h Proxy) oneFamily() (family byte, source, destination netip.Addr) {
	source, destination = h.Source.Addr().Unmap().WithZone(""), h.Destination.Addr().Unmap().WithZone("")
	switch {
	case !source.IsValid() || !destination.IsValid():
		return 0, source, destination
	case source.Is4() && destination.Is4():
		return 1, source, destination
	}
	return 2, netip.AddrFrom16(source.As16()), netip.AddrFrom16(destination.As16())
}
