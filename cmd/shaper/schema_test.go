package main

import (
	"encoding/json"
	"testing"
)

func TestSchema(t *testing.T) {
	var s struct {
		Properties struct {
			Class struct{ AdditionalProperties struct{ Required []string } }
		}
	}
	if err := json.Unmarshal([]byte(want(t, 0, nil, "schema")), &s); err != nil || len(s.Properties.Class.AdditionalProperties.Required) == 0 {
		t.Errorf("error %v; the keys that a class needs are not in %+v", err, s)
	}
	want(t, 64, nil, "schema", "class")
}
