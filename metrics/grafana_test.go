package metrics

import (
	"encoding/json"
	"testing"
)

// grafana is the part of a dashboard that asks for something.
type grafana struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []struct {
		ID         int
		Type       string
		Title      string
		GridPos    struct{ X, Y, W, H int }
		Datasource struct{ UID string }
		Options    struct{ Content string }
		Targets    []struct{ RefID, Expr, LegendFormat string }
	}
}

// The dashboard asks only for what there is, of the data source that the user has chosen, and no two
// panels have the same number or place.
func TestGrafana(t *testing.T) {
	var d grafana
	if err := json.Unmarshal([]byte(read(t, "grafana.json")), &d); err != nil {
		t.Fatal(err)
	}
	all, ids, cells := offers(), map[int]bool{}, map[[2]int]string{}
	ask := func(who, promQL string) {
		if what := all.missing(promQL, nil); promQL == "" || what != nil {
			t.Errorf("%s asks for what there is not: %q: %s", who, what, promQL)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			ask("variable "+v.Name, v.Definition)
		}
	}
	ask("the annotation", d.Annotations.List[0].Expr)
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%q has number %d again", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if at[0] >= 24 || cells[at] != "" {
					t.Fatalf("%q has the place %v of %q, or is outside", p.Title, at, cells[at])
				}
				cells[at] = p.Title + " "
			}
		}
		switch {
		case p.Type == "row":
		case p.Type == "text":
			if n := len(p.Options.Content); n == 0 || n > 200 {
				t.Errorf("a text has %d bytes", n)
			}
		case len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" || p.Title == "":
			t.Errorf("%+v", p)
		}
		for _, q := range p.Targets {
			ask(p.Title+", "+q.RefID, q.Expr)
		}
	}
	if d.UID != "shaper" || d.SchemaVersion < 41 || len(ids) < 50 {
		t.Errorf("%q, version %d, %d panels", d.UID, d.SchemaVersion, len(ids))
	}
}
