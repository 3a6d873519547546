package frame

import "testing"

// The head of the last answer says that it is the last one. What the server says of its own connection goes.
func TestAppendClosing(t *testing.T) {
	for head, want := range map[string]string{
		"HTTP/1.1 200 OK\r\n\r\n": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200\r\nconnection: keep-alive, x\r\nX: y\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nConnection-X: z\r\n\r\n": "HTTP/1.1 200\r\nConnection: close\r\nX: y\r\nConnection-X: z\r\n\r\n",
		"HTTP/1.0 200 OK\r\nCONNECTION:close\r\nContent-Length: 2\r\n\r\n":                                                                      "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n",
	} {
		if got := string(AppendClosing(nil, []byte(head))); got != want {
			t.Errorf("%q becomes %q, want %q", head, got, want)
		}
	}
}
