package simulate

import "net/netip"

// Deal returns what member i of n gets of a source, counted from 0: of a source that holds, which is a
// generated load, each n-th arrival; of any other, which is a trace, all arrivals of each n-th
// client, in the order in which they come first. Each member needs the source from its beginning.
func Deal(source Source, i, n int) Source {
	if n == 1 {
		return source
	}
	of := byTurn()
	if !source.Holds {
		of = byClient()
	}
	return Source{Holds: source.Holds, Next: func(a *Arrival) error {
		for {
			if err := source.Next(a); err != nil || of(a)%n == i {
				return err
			}
		}
	}}
}

// byTurn returns a function that counts arrivals, from 0.
func byTurn() func(*Arrival) int {
	count := -1
	return func(*Arrival) int {
		count++
		return count
	}
}

// byClient returns a function that returns the number of the client of an arrival, from 0.
func byClient() func(*Arrival) int {
	numbers := map[netip.AddrPort]int{}
	return func(a *Arrival) int {
		number, known := numbers[a.Conn.Source]
		if !known {
			number = len(numbers)
			numbers[a.Conn.Source] = number
		}
		return number
	}
}
