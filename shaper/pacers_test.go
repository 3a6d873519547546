package shaper

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"shaper/policy"
)

// slow is an owner whose items take until a test lets go of them. It sends each item that
// leaves.
type slow struct {
	left  chan *Item
	letGo chan struct{}
	item  *Item
}

func (h slow) Leave(time.Time) {
	h.left <- h.item
	<-h.letGo
}

// enterSlow makes n items wait that are slow when they leave. They enter at the very moment at which
// nothing passes: a moment later one might leave at once, and the owner would never hear of it.
func enterSlow(c *Class, n int) (left chan *Item, letGo chan struct{}) {
	left, letGo = make(chan *Item, n), make(chan struct{})
	now := time.Now()
	for c.Pass(now, Cost{Bytes: 1000}) {
	}
	for range n {
		it := packet(1)
		it.Owner = slow{left, letGo, it}
		if v := c.Enter(now, it); v != Waits {
			panic(fmt.Sprintf("an item does not wait: %v", v))
		}
	}
	return left, letGo
}

// onTwoPacers returns a Shaper with two pacers, and two of its classes, each a tree.
func onTwoPacers(t *testing.T) (s *Shaper, a, b *Class) {
	s = newShaper(newTimer(), newTimer())
	t.Cleanup(s.Close)
	s.Apply([]policy.Class{named("a", leakyClass("100KB/s")), named("b", leakyClass("100KB/s"))})
	return s, s.Class("a"), s.Class("b")
}

// TestAPacerForEachProcessor holds that a Shaper has as many pacers as Go has processors.
func TestAPacerForEachProcessor(t *testing.T) {
	for _, processors := range []int{1, 3} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		s := New()
		defer s.Close()
		if got := len(s.pacers.all); got != processors {
			t.Errorf("%d pacers on %d processors", got, processors)
		}
	}
}

// TestTreesDoNotWaitForEachOther lets an item of one tree take long. Items of the next tree
// leave meanwhile.
func TestTreesDoNotWaitForEachOther(t *testing.T) {
	_, a, b := onTwoPacers(t)
	aLeft, aGo := enterSlow(a, 1)
	<-aLeft
	bLeft, bGo := enterSlow(b, 2)
	close(bGo)
	<-bLeft
	<-bLeft
	close(aGo)
}

// TestOrderOfAMove moves a class under a tree of another pacer while an item of it takes
// long. The next item waits for that.
func TestOrderOfAMove(t *testing.T) {
	s, a, b := onTwoPacers(t)
	aLeft, aGo := enterSlow(a, 2)
	bLeft, bGo := enterSlow(b, 1)
	close(bGo)
	<-aLeft
	<-bLeft // so b has a pacer, which is not that of a
	if a.waker == b.waker {
		t.Fatal("two trees have one pacer although there are two")
	}
	s.Apply([]policy.Class{under("b", named("a", leakyClass("100KB/s"))), named("b", leakyClass("100KB/s"))})
	for range 100 { // b may send by now, but nothing of a
		soon := time.Now().Add(second)
		if it, _ := idlePacer().hand(soon, &b.node, soon); it != nil {
			t.Fatal("an item leaves while the one before is still on its way")
		}
	}
	aGo <- struct{}{}
	<-aLeft
	aGo <- struct{}{}
}

// writes is an owner of an item that takes a system call to leave, and then comes back.
type writes struct {
	class *Class
	item  *Item
	file  uintptr
	quota *atomic.Int64
	done  chan<- struct{}
}

func (o *writes) Leave(now time.Time) {
	var b [64]byte
	for range 4 { // about as long as to send a datagram
		syscall.RawSyscall(syscall.SYS_READ, o.file, uintptr(unsafe.Pointer(&b)), uintptr(len(b)))
	}
	if o.quota.Add(-1) == 0 {
		o.done <- struct{}{}
		return
	}
	o.class.Enter(now, o.item)
}

// BenchmarkPacers is one departure of many trees that want more than the pacers can do. An
// item takes some system calls to leave. Compare -cpu 1 with -cpu 2.
func BenchmarkPacers(b *testing.B) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		b.Fatal(err)
	}
	defer zero.Close()
	s := New()
	defer s.Close()
	const trees = 64
	var confs []policy.Class
	for i := range trees {
		confs = append(confs, named(strconv.Itoa(i), leakyClass("1000000 packets/s")))
	}
	s.Apply(confs)
	done := make(chan struct{}, trees)
	each := int64(b.N/trees + 1)
	b.ResetTimer()
	for _, c := range s.Classes() {
		quota := &atomic.Int64{}
		quota.Store(each)
		o := &writes{class: c, file: zero.Fd(), quota: quota, done: done, item: packet(1)}
		o.item.Owner = o
		now := time.Now()
		c.Enter(now, packet(1))
		c.Enter(now, o.item)
	}
	for range trees {
		<-done
	}
	runtime.KeepAlive(zero)
}
