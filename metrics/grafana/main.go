// Command grafana prints the Grafana dashboard of shaper, metrics/grafana.json, from a list of what
// it shows. So no two panels have the same number or place, and all look alike.
//
// Each file calls only those below it:
//
//	main    prints the dashboard
//	panels  what it shows, row by row
//	model   the JSON that Grafana reads
package main

import (
	"bytes"
	"encoding/json"
	"os"
)

//go:generate sh -c "go run . >../grafana.json"

func main() {
	text, err := marshal(dashboard(rows()))
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		panic(err)
	}
}

// marshal returns a value as JSON that a diff shows line by line.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(v)
	return out.Bytes(), err
}
