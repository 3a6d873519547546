package main

import (
	"os"
	"testing"
)

// The file in the repository is what this program prints.
func TestFileIsCurrent(t *testing.T) {
	want, err := marshal(dashboard(rows()))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../grafana.json"); err != nil || string(got) != string(want) {
		t.Errorf("metrics/grafana.json is not current: go generate ./metrics/grafana (%v)", err)
	}
}
