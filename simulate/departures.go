package simulate

import (
	"io"
	"strconv"
	"time"
)

// WriteDepartures writes the header of a CSV file, and returns a function that writes a line
// for each departure: the time and how long the item waited, both in seconds; its class; the
// client; the bytes; and for a fleet the number of the member. Times count from Epoch, as in a trace.
// If w is buffered, the caller flushes it.
func WriteDepartures(w io.Writer, fleet bool) (func(*Departure) error, error) {
	var line []byte
	header := "time,wait,class,client,bytes\n"
	if fleet {
		header = "time,wait,class,client,bytes,member\n"
	}
	_, err := io.WriteString(w, header)
	return func(d *Departure) error {
		line = appendSeconds(line[:0], d.At.Unix(), d.At.Nanosecond())
		wait := d.At.Sub(d.Arrived)
		line = appendSeconds(append(line, ','), int64(wait/time.Second), int(wait%time.Second))
		line = append(append(append(line, ','), d.Class...), ',')
		if d.Source.Port() == 0 {
			line = d.Source.Addr().AppendTo(line)
		} else {
			line = d.Source.AppendTo(line)
		}
		line = strconv.AppendInt(append(line, ','), d.Bytes, 10)
		if fleet {
			line = strconv.AppendInt(append(line, ','), int64(d.Member), 10)
		}
		line = append(line, '\n')
		_, err := w.Write(line)
		return err
	}, err
}

// appendSeconds appends s seconds and ns nanoseconds as a decimal number.
func appendSeconds(b []byte, s int64, ns int) []byte {
	b = append(strconv.AppendInt(b, s, 10), '.')
	for digit := 100_000_000; digit > 0; digit /= 10 {
		b = append(b, byte('0'+ns/digit%10))
	}
	return b
}
