// Package entry reads what a client says before its session begins: where it comes from, and
// where it wants to go. Its parsers know no sockets and no clocks. They get the bytes that have
// come so far, and return how many of them they have used; 0 asks for more. They never need
// more than their bound, and they never change or keep the bytes.
//
// Files call downwards only:
//
//	proxy     the headers of the PROXY protocol
//	datagram  datagrams of SOCKS
//	socks5    SOCKS version 5
//	connect   an HTTP proxy
//	request   the head of a request to it
//	sni       the name of the server in the ClientHello of TLS
//	users     the passwords of clients
//	entry     what the protocols have in common: steps and destinations
package entry
