package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A Peer is a member of a class, as the store knows it.
type Peer struct {
	Name  string        // "" stands for members that the store has forgotten, and whose shares it holds back
	Share float64       // of the class, while the store is away
	Age   time.Duration // since it has joined; 0: not known
	Seen  time.Duration // since the store has heard of it; 0: not known
	// Deadline is that of its policy, between 50 ms and 250 ms; 0: not known.
	Deadline time.Duration
	// Silent says that the member has not told the store in time that it is there. The store
	// holds the share of the member back.
	Silent bool
}

// peerFields is how many texts peers.lua returns for each member.
const peerFields = 6

// peersOf reads what peers.lua returns, without the echo: those with a name first.
func peersOf(texts []string) ([]Peer, error) {
	if len(texts)%peerFields != 1 {
		return nil, fmt.Errorf("a list of members has %d fields", len(texts))
	}
	now, err := strconv.ParseInt(texts[0], 10, 64)
	if err != nil {
		return nil, err
	}
	var all []Peer
	for of := range slices.Chunk(texts[1:], peerFields) {
		var n [peerFields]int64
		for i := 1; i < peerFields; i++ {
			if n[i], err = strconv.ParseInt(of[i], 10, 64); err != nil {
				return nil, err
			}
		}
		since := func(at int64) time.Duration {
			if at == 0 {
				return 0
			}
			return max(Stamp(now).Sub(Stamp(at)), 0)
		}
		all = append(all, Peer{
			Name: of[0], Silent: n[1] < now, Share: float64(n[2]) / whole, Age: since(n[3]), Seen: since(n[4]),
			Deadline: time.Duration(n[5]) * time.Microsecond,
		})
	}
	slices.SortFunc(all, func(a, b Peer) int {
		if (a.Name == "") != (b.Name == "") {
			return cmp.Compare(b.Name, a.Name)
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return all, nil
}
