package sock

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// What precedes is read first, in any pieces, and then what the peer sends, also through pipes.
func TestPreceded(t *testing.T) {
	for _, size := range []int{1, 3, 5, 7, 100} {
		end, peer, err := Kernel{}.Pair()
		if err != nil {
			t.Fatal(err)
		}
		p := Precede(end, []byte("first"))
		if n, err := p.Peek(make([]byte, 3)); n != 3 || err != nil || p.AtEnd() {
			t.Errorf("Peek: %d, %v", n, err)
		}
		io.WriteString(peer, "second")
		var got strings.Builder
		for got.Len() < len("firstsecond") {
			b := make([]byte, size)
			n, err := p.Read(b)
			if err != nil || n == 0 {
				t.Fatalf("%q, %d, %v", got.String(), n, err)
			}
			got.Write(b[:n])
		}
		if _, err := p.Read(make([]byte, 1)); got.String() != "firstsecond" || err != unix.EAGAIN {
			t.Errorf("in pieces of %d: %q, %v", size, got.String(), err)
		}
		peer.Close()
		if n, err := p.Read(make([]byte, 1)); n != 0 || err != nil || !p.AtEnd() {
			t.Errorf("at the end: %d, %v", n, err)
		}
		p.Close()
	}
}

// Only the first piece is copied: a cargo moves the rest through a pipe.
func TestPrecededThroughPipes(t *testing.T) {
	end, peer, err := Kernel{}.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	p := Precede(end, []byte("first"))
	defer p.Close()
	peer.Write(make([]byte, 64<<10))
	pipes := Kernel{}.NewPipes()
	defer pipes.Close()
	var refused atomic.Uint64
	var c Cargo
	c.Init(pipes, &refused)
	for i, piped := range []bool{false, true} {
		if drained, err := c.Load(p, Most); drained || err != nil || (c.pipe != nil) != piped {
			t.Fatalf("load %d: %v, %v, in a pipe: %v", i+1, drained, err, c.pipe != nil)
		}
		if i == 0 && string(c.buf.Bytes[:5]) != "first" {
			t.Errorf("the first piece begins with %q", c.buf.Bytes[:5])
		}
		c.Clear()
	}
	if n := refused.Load(); n != 0 {
		t.Errorf("splice was refused %d times", n)
	}
}

// An error after the first bytes is not lost.
func TestPrecededReset(t *testing.T) {
	p := Precede(torn{}, []byte("first"))
	if n, err := p.Read(make([]byte, 10)); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := p.Read(make([]byte, 10)); n != 0 || err != unix.ECONNRESET {
		t.Errorf("%d, %v", n, err)
	}
}

// torn is an end whose peer has reset it.
type torn struct{ End }

func (torn) Read([]byte) (int, error) { return 0, unix.ECONNRESET }
