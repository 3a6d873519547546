// Package frame finds where messages begin and end in the bytes of a
// connection, in the protocols whose providers count messages: SMPP 3.3, 3.4 and 5.0,
// HTTP/1.1, ISO 8583 behind a length, and lines.
//
// A [Link] is one connection from a client to a provider; it has a [Scanner] for
// each direction. A scanner is handed bytes as they were read, however they were
// cut, and says what they begin with: a whole message, the head of one, a piece
// of its body, or nothing yet. It owns and copies no payload and changes no byte.
// What it keeps is bounded and small, and no message has it allocate but one more
// SMPP request in flight than it has room for. A declared length is only ever
// compared, so it may say what it likes. An [Origin] rewrites heads of HTTP for
// another host.
//
// A [Message] tells of what was found: whether it is counted and what it costs,
// or passes at once; whether and how it may be refused; which request it answers,
// and whether the provider says in it that this is too fast; and what rules look
// at. Nothing here reads a clock, waits, or knows a socket.
//
// # What is gathered
//
// What must be looked at as a whole, or leave in one write, is gathered: Next has
// to be given it from its beginning until it is all there, and says with [More]
// that it is not. It is never more than [Settings.Bound] bytes; what would be is
// an error. The rest streams through.
//
//	protocol  gathered                  at most               streams through
//	smpp      a PDU                     128 KiB               -
//	http      a head, trailers          64 KiB each           bodies, what follows an upgrade
//	          a line of a chunk's size  256 bytes
//	iso8583   prefix and message        10,001 to 65,539 B    -
//	lines     a line                    64 KiB                -
//
// # What is counted, and what passes
//
//	protocol  counted, by 1 unless said          costs nothing, at once   costs nothing, in turn
//	smpp      submit_sm, data_sm, deliver_sm,    enquire_link, binds,     unbind, query_sm,
//	          broadcast_sm; submit_multi by      outbind, alert_          cancel_sm, replace_sm,
//	          its number of destinations         notification, what is    query_broadcast_sm,
//	                                             unknown; all responses   cancel_broadcast_sm
//	http      a request, at its head             responses                -
//	iso8583   every other message                network management       -
//	                                             (MTI x8xx), responses
//	                                             (odd function), empty
//	                                             messages
//	lines     a line                             -                        an empty line
//
// What passes at once does so between whole messages. What has its turn refers to
// messages before it, or ends what they go through: it must not overtake them.
// Distribution lists of submit_multi count as one destination each, since only
// the provider knows how many they hold. An ISO 8583 message whose type cannot be
// read is counted, for nothing may pass a limit by being odd.
//
// The same holds in both directions: messages of an SMPP provider to the client
// are counted for a class of that way. In flight is only what was sent to the
// provider.
//
// # How excess is refused
//
// smpp: by the request's own response with ESME_RTHROTTLED and its sequence
// number, at any boundary of a PDU. http: by 429 (RFC 6585) with Retry-After,
// RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10), in
// turn behind the responses to what was sent before. iso8583 and lines have no way
// to refuse: stop reading, and the client waits.
//
// After a 429 the connection goes on where the body that belongs to the request
// can be read and thrown away. It ends ([Message.Close]) where that is more than
// [MaxSwallow], or may come or not because of Expect: 100-continue, where the
// client asked for that, and in HTTP/1.0.
//
// # What ends a session
//
// What cannot be framed with certainty is an [Error], whose [Reason] is one of a
// small set. HTTP is read as RFC 9112 has it at its strictest, since two who
// read the same bytes differently is how requests are smuggled:
//
//	bad-start       no request line or status line of HTTP/1.0 or 1.1
//	http2           the preface of HTTP/2, or an upgrade to it
//	bad-field       a name that is no token or has space behind it, a control character
//	                in a value (NUL too), a trailer that frames
//	obs-fold        a field continued on the next line
//	bare-lf         a line that ends without CR
//	bare-cr         a CR within a line
//	bad-host        more than one Host
//	head-too-large  a head or trailers of more than 64 KiB
//	bad-length      a Content-Length that is no number, or one for CONNECT; an SMPP
//	                command_length below 16; an ISO 8583 prefix that is no length
//	both-lengths    Content-Length with Transfer-Encoding, or differing ones
//	bad-encoding    a Transfer-Encoding other than exactly chunked, or in HTTP/1.0
//	bad-chunk       a chunk size that is no plain hexadecimal number, a line of it over 256
//	                bytes, data that does not end where it says
//	bad-upgrade     a 101 to a request that asked for none
//	too-long        a PDU of more than 128 KiB, a line of more than 64 KiB
//	cut-short       the end of the stream within a message
//
// What net/http, nginx or HAProxy are lenient about and this is not: empty
// lines before a request, spaces around a chunk's size, codings before chunked.
//
// # What rules see
//
// Method, path (the target without its query, of the absolute form without
// scheme and authority) and host (of the target, else of Host, without its port)
// are the bytes as they were sent: not decoded, not cleaned, not lowered.
// source_addr is that of the message, system_id that of the last bind.
//
// # Files
//
// Files call downwards only. First come the links, one for each protocol; then what they
// are made of.
//
//	frame     what a link and its scanners promise, whatever the protocol
//	smpp      the link of SMPP
//	pdu       what a PDU says: its source, its cost, what it says about the rate
//	window    the requests of SMPP without an answer, by sequence number
//	http      the link of HTTP
//	refuse    the text of a 429
//	request   the scanner of requests
//	response  the scanner of responses
//	stream    heads and bodies of either direction
//	pipeline  the requests of HTTP without an answer, in their order
//	retry     what a 429 or a 503 says about the rate
//	origin    rewriting heads for another host
//	target    path and host of a request
//	head      the fields of a head
//	iso8583   the link of ISO 8583
//	lines     the link of lines
//	gather    the scanner of messages that are gathered whole
//	message   what is found: a message, and what it says
//	error     why bytes cannot be framed
package frame
