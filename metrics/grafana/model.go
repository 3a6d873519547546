package main

import "strings"

// object is a JSON object.
type object = map[string]any

// A row is a headline and what stands beneath it.
type row struct {
	title  string
	panels []panel
}

// A panel shows the answers to some queries. In an expression, @class selects the classes and
// instances that the user has chosen, @instance the instances, and @rate is a time that has enough
// samples for a rate.
type panel struct {
	kind    string // of Grafana: "timeseries", "stat", "table" or "text"
	title   string
	about   string // help; the content of a text
	unit    string // of Grafana; "": a number
	width   int    // of 24
	most    any    // the end of the scale; nil: what the values need
	bad     string // of a stat: which values are bad, "above 0" or "below 1"; "": none
	queries []query
}

// A query is an expression of PromQL. The legend names a series by its labels.
type query struct{ expr, legend string }

var selectors = strings.NewReplacer(
	"@class", `instance=~"$instance",class=~"$class"`,
	"@instance", `instance=~"$instance"`,
	"@rate", "$__rate_interval",
)

// source is the data source that the user has chosen.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// schemaVersion is that of Grafana 12. Later ones convert it, and earlier ones read it.
const schemaVersion = 41

// dashboard returns the dashboard with some rows.
func dashboard(rows []row) object {
	return object{
		"uid": "shaper", "title": "shaper", "tags": []string{"shaper"}, "schemaVersion": schemaVersion, "version": 1,
		"description": "What passes through shaper, what waits, what is refused, and why.",
		"editable":    true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
		"time":        object{"from": "now-3h", "to": "now"},
		"templating":  object{"list": variables()},
		"annotations": object{"list": []object{reloads()}},
		"panels":      place(rows),
	}
}

// variables returns what the user chooses at the top.
func variables() []object {
	query := func(name, label, of string) object {
		return object{
			"type": "query", "name": name, "label": label, "datasource": source, "definition": of,
			"query":   object{"query": of, "refId": name},
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		}
	}
	return []object{
		{"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1},
		query("instance", "Instance", "label_values(shaper_build_info, instance)"),
		query("class", "Class", selectors.Replace("label_values(shaper_class_rate{@instance}, class)")),
	}
}

// reloads marks in all panels when a policy came in force.
func reloads() object {
	return object{
		"name": "Reloads", "enable": true, "iconColor": "blue", "datasource": source,
		"expr":        selectors.Replace("changes(shaper_config_last_reload_success_timestamp_seconds{@instance}[@rate]) > 0"),
		"titleFormat": "new policy", "textFormat": "{{instance}}",
	}
}

// place gives each panel its number and its place, from left to right and from top to bottom.
func place(rows []row) (all []object) {
	x, y, height := 0, 0, 0
	add := func(o object, w, h int) {
		if x+w > 24 {
			x, y, height = 0, y+height, 0
		}
		o["id"], o["gridPos"] = len(all)+1, object{"x": x, "y": y, "w": w, "h": h}
		all = append(all, o)
		x, height = x+w, max(height, h)
	}
	for _, r := range rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 24, 1)
		for _, p := range r.panels {
			add(p.object(), p.width, p.height())
		}
		x = 24 // the next row begins below
	}
	return all
}

func (p panel) height() int {
	switch p.kind {
	case "stat":
		return 4
	case "text":
		return 2
	}
	return 8
}

// object returns the panel as Grafana reads it, without its place.
func (p panel) object() object {
	if p.kind == "text" {
		return object{"type": "text", "title": p.title, "transparent": true, "options": object{"mode": "markdown", "content": p.about}}
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.most != nil {
		defaults["max"] = p.most
	}
	o := object{"type": p.kind, "title": p.title, "description": p.about, "datasource": source, "targets": p.targets(),
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}}
	switch p.kind {
	case "timeseries":
		p.lines(o, defaults)
	case "stat":
		defaults["thresholds"] = p.thresholds()
		o["options"] = object{"colorMode": "value", "graphMode": "area", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	case "table":
		p.columns(o)
	}
	return o
}

// targets returns the queries of a panel.
func (p panel) targets() (all []object) {
	for i, q := range p.queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "expr": selectors.Replace(q.expr), "legendFormat": q.legend}
		if p.kind == "table" {
			t["instant"], t["format"] = true, "table"
		} else {
			t["range"] = true
		}
		all = append(all, t)
	}
	return all
}

// lines draws limits as dashes, and the rest as thin lines with their figures beneath.
func (p panel) lines(o, defaults object) {
	defaults["custom"] = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
	o["fieldConfig"].(object)["overrides"] = []object{{
		"matcher": object{"id": "byRegexp", "options": "^limit.*"},
		"properties": []object{
			{"id": "custom.lineStyle", "value": object{"fill": "dash", "dash": []int{6, 6}}},
			{"id": "custom.fillOpacity", "value": 0},
		},
	}}
	o["options"] = object{
		"legend":  object{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max"}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
}

// columns makes one table of all queries: their legends are the titles of its columns.
func (p panel) columns(o object) {
	names, hidden := object{"instance": "Instance", "class": "Class"}, object{"Time": true}
	for i, q := range p.queries {
		names["Value #"+string(rune('A'+i))] = q.legend
	}
	o["options"] = object{"showHeader": true, "sortBy": []object{{"displayName": "Oldest", "desc": true}}}
	o["transformations"] = []object{
		{"id": "merge", "options": object{}},
		{"id": "organize", "options": object{"excludeByName": hidden, "renameByName": names}},
	}
}

// thresholds colours what is bad.
func (p panel) thresholds() object {
	steps := []object{{"color": "text", "value": nil}}
	switch p.bad {
	case "above 0":
		steps = []object{{"color": "green", "value": nil}, {"color": "red", "value": 1e-9}}
	case "below 1":
		steps = []object{{"color": "red", "value": nil}, {"color": "green", "value": 1}}
	}
	return object{"mode": "absolute", "steps": steps}
}
