// Package frame finds where messages begin and end in the bytes of a connection. It knows
// the protocols whose providers count messages: SMPP 3.3, 3.4 and 5.0, HTTP/1.1, ISO 8583
// behind a length, and lines.
//
// A [Link] stands for one connection from a client to a provider. It has a [Scanner] for each
// direction. The caller gives a scanner the bytes as it has read them, cut anywhere. The
// scanner says what they begin with: a whole message, the head of one, a piece of its body,
// or nothing yet. It keeps no payload, copies none and changes none. Its memory is small and
// bounded, and only the table of SMPP requests ever grows. It compares a declared length and
// never allocates for it, so a false one does no harm. An [Origin] rewrites heads of HTTP for
// another host.
//
// A [Message] says what was found: whether it is counted and what it costs; whether and how
// it may be refused; which request it answers, and whether the provider says in it that the
// client is too fast; and what rules look at. Nothing here reads a clock, waits, or knows a
// socket.
//
// # What is gathered
//
// What has to be looked at as a whole, or leaves in one write, is gathered: the caller gives
// Next all of it from its beginning, and Next returns [More] until it is complete. It has at
// most [Settings.Bound] bytes; if it would have more, that is an error. Everything else
// streams through.
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
// What passes at once may overtake messages that wait. What keeps its turn must not, because
// it refers to earlier messages, or ends the session. A distribution list in submit_multi
// counts as one destination, because only the provider knows how many it holds. An ISO 8583
// message whose type cannot be read is counted: an odd message must not pass a limit.
//
// Both directions are read alike. The messages that an SMPP provider sends to the client are
// counted in the class of that direction. Only requests to the provider can be in flight.
//
// # How excess is refused
//
// In smpp, the answer to a request is its response with ESME_RTHROTTLED and its sequence
// number. It may stand between any two PDUs. In http, the answer is a 429 (RFC 6585) with
// Retry-After, RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10), the older
// X-RateLimit-Limit, -Remaining and -Reset, and X-Queue-Position and X-Queue-Wait. It
// comes in its turn, after the responses to earlier requests. iso8583 and lines cannot
// refuse: the proxy stops reading instead, and the client waits.
//
// After a 429 the connection goes on if the body of the request can be read and thrown away.
// The connection ends ([Message.Close]) if the body is longer than [MaxSwallow]; if it may or
// may not come, because of Expect: 100-continue; if the client asked for the end; and in
// HTTP/1.0.
//
// # What ends a session
//
// If it is not certain where a message ends, the result is an [Error], whose [Reason] is one
// of a small set. HTTP is read by the strictest rules of RFC 9112, because requests can be
// smuggled wherever two programs read the same bytes differently:
//
//	bad-start       no request line or status line of HTTP/1.0 or 1.1; more than two empty
//	                lines before a request, or one before a response
//	http2           the preface of HTTP/2, or an upgrade to it
//	bad-field       a name that is not a token, or has a space behind it; a control character
//	                in a value (NUL too); a trailer that would frame the message
//	obs-fold        a field that continues on the next line
//	bare-lf         a line that ends without CR
//	bare-cr         a CR within a line
//	bad-host        more than one Host
//	head-too-large  a head or trailers of more than 64 KiB
//	bad-length      a Content-Length that is not a number, or is above 0 for CONNECT; an SMPP
//	                command_length below 16; an ISO 8583 prefix that is not a length
//	both-lengths    Content-Length with Transfer-Encoding, or two that differ
//	bad-encoding    a Transfer-Encoding other than chunked alone, or one in HTTP/1.0
//	bad-chunk       a chunk size that is not a plain hexadecimal number, or whose line has more
//	                than 256 bytes; data that does not end where the size says
//	bad-upgrade     a 101 in answer to a request without Upgrade
//	too-long        a PDU of more than 128 KiB, or a line of more than 64 KiB; an answer that is
//	                thrown away and does not end
//	cut-short       the end of the stream within a message
//
// net/http, nginx or HAProxy accept spaces around a chunk size, or other codings before chunked.
// This package does not. Like them it accepts empty lines before a request, which end with CRLF
// ([Blank]): two readers that differ about these still find the same request.
//
// # What rules see
//
// Rules see bytes as they were sent: not decoded, not cleaned, not lowered. The path is the
// target without its query, and without scheme and authority if it has them. The host is that
// of the target, else of Host, without its port. source_addr is that of the message, and
// system_id that of the last bind. The recipient is destination_addr, in submit_multi that of
// the only destination; several have no recipient. A PDU is read for this only if somebody asks
// ([Message.Submit]): most limits do not, and a message costs them nothing more.
//
// # Files
//
// Files call downwards only. First come the links, one for each protocol; then what they
// are made of.
//
//	frame     what a link and its scanners promise, whatever the protocol
//	sms       in how many parts a PDU is sent
//	smpp      the link of SMPP
//	submit    what a counted PDU says to rules
//	pdu       what a PDU says of its cost and of the rate
//	requests  those of SMPP without an answer, by sequence number
//	http      the link of HTTP
//	refuse    the text of a 429
//	request   the scanner of requests
//	response  the scanner of responses
//	content   what a body contains
//	stream    heads and bodies of either direction
//	pipeline  the requests of HTTP without an answer, in their order
//	hints     what an answer says of the limits of its provider
//	reset     until when that holds
//	retry     what a 429 or a 503 says about the rate
//	origin    rewriting heads for another host
//	closing   rewriting the head of the last answer of a connection
//	target    path and host of a request
//	head      the fields of a head
//	iso8583   the link of ISO 8583
//	lines     the link of lines
//	gather    the scanner of messages that are gathered whole
//	message   what is found: a message, and what it says
//	error     why bytes cannot be framed
package frame
