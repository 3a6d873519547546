package frame

import "bytes"

// AppendClosing appends the head of a response, changed so that it says that the connection ends
// with it. The head is one that a scanner has found. What it says of the connection to the server
// does not hold for the client, and goes. All other bytes stay the same.
func AppendClosing(dst, head []byte) []byte {
	at := bytes.IndexByte(head, '\n') + 1
	dst = append(dst, head[:at]...)
	dst = append(dst, "Connection: close\r\n"...)
	for line := range bytes.Lines(head[at:]) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if !equalsLower(name, "connection") && !equalsLower(name, "keep-alive") && !equalsLower(name, "proxy-connection") {
			dst = append(dst, line...)
		}
	}
	return dst
}
