package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

func kinds() []kind {
	return slices.Concat(bulkKinds(), rttKinds(), connsKinds(), idleKinds(), udpKinds(), rateKinds(), gapKinds(), shortKinds(), requestKinds(), smsKinds())
}

func names() (all []string) {
	for _, k := range kinds() {
		all = append(all, k.name)
	}
	return all
}

// choose returns the kinds of work that only names, restricted to the ways that peers names.
// Both are lists separated by commas; "" means all. Only may name kinds and groups.
func choose(only, peers string) (chosen []kind, err error) {
	if only == "" {
		only = strings.Join(names(), ",")
	}
	for name := range strings.SplitSeq(only, ",") {
		known := false
		for _, k := range kinds() {
			if k.name != name && k.group != name {
				continue
			}
			known = true
			if k.ways = chooseWays(k.ways, peers); len(k.ways) > 0 {
				chosen = append(chosen, k)
			}
		}
		if !known {
			return nil, fmt.Errorf("-only: unknown kind of work %q; known: %s", name, strings.Join(names(), ", "))
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-ways: no chosen kind of work goes by %q", peers)
	}
	return chosen, nil
}

func chooseWays(ways []way, peers string) (chosen []way) {
	for _, w := range ways {
		if peers == "" || slices.Contains(strings.Split(peers, ","), w.peer()) {
			chosen = append(chosen, w)
		}
	}
	return chosen
}

// goesBy reports whether some work goes by a peer.
func goesBy(chosen []kind, peer string) bool {
	return slices.ContainsFunc(chosen, func(k kind) bool {
		return slices.ContainsFunc(k.ways, func(w way) bool { return w.peer() == peer })
	})
}

// measure takes every way once in each round, so that a change of the machine affects all ways
// alike. Every second round runs in reverse, so that no way is always first.
func measure(k kind, tools tools, o options) result {
	r := result{kind: k}
	r.seconds = cmp.Or(o.seconds, k.seconds)
	for _, w := range k.ways {
		r.rows = append(r.rows, row{way: w})
	}
	for round := range o.rounds {
		for i := range r.rows {
			if round%2 == 1 {
				i = len(r.rows) - 1 - i
			}
			row := &r.rows[i]
			if row.failed != nil {
				continue
			}
			values, err := measureOnce(r.kind, row.way, tools, o)
			if err != nil {
				row.failed = fmt.Errorf("round %d: %w", round+1, err)
				fmt.Fprintf(os.Stderr, "%-9s %d %-28s %v\n", k.name, round+1, row.way.name, err)
				continue
			}
			row.rounds = append(row.rounds, values)
			fmt.Fprintf(os.Stderr, "%-9s %d %-28s %s\n", k.name, round+1, row.way.name, oneLine(k.columns, values))
		}
	}
	return r
}

// measureOnce measures one way once. It starts a new proxy for it.
func measureOnce(k kind, w way, tools tools, o options) ([]float64, error) {
	if w.shapeLink != nil {
		undo, err := w.shapeLink(k.setting)
		defer undo()
		if err != nil {
			return nil, err
		}
	}
	if w.config == nil {
		return k.measure(&trial{kind: k, way: w, port: sinkPort})
	}
	launch, undo, err := w.launched()
	defer undo()
	if err != nil {
		return nil, err
	}
	p, err := startProxy(w, k.setting, tools, o.proxyCPU, launch)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	stop, err := startNeighbours(w, o)
	defer stop()
	if err != nil {
		return nil, err
	}
	values, err := k.measure(&trial{kind: k, way: w, proxy: p, port: proxyPort})
	if err != nil && p.hasExited() {
		return nil, fmt.Errorf("%w; the proxy has exited: %s", err, p.log)
	}
	return values, err
}
