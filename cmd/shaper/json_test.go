package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/daemon"
	"shaper/policy"
	"shaper/simulate"
	"shaper/stats"
	"shaper/tc"
)

// jsonOutputs are parts that several commands print with --json, and then what commands print. One that
// contains another comes after it, so that docs/json.md lists each field once.
var jsonOutputs = []struct {
	title string
	value any
}{
	{"a rate", stats.RateReading{}},
	{"a volume", stats.VolumeReading{}},
	{"a loss", stats.LossReading{}},
	{"a change", policy.Change{}},
	{"a mistake", policy.Error{}},
	{"a class", stats.ClassReading{}},
	{"shaper classes", []daemon.Class{}},
	{"shaper fleet", []daemon.Fleet{}},
	{"shaper status", daemon.Status{}},
	{"shaper why", daemon.Why{}},
	{"shaper sessions", []daemon.Session{}},
	{"shaper upstreams", []daemon.Upstream{}},
	{"shaper history", daemon.History{}},
	{"shaper diff", daemon.Compared{}},
	{"shaper reload", daemon.Reloaded{}},
	{"shaper confirm", daemon.Confirmed{}},
	{"shaper set", daemon.Changed{}},
	{"shaper shadow", daemon.Shadow{}},
	{"shaper explain", []policy.Explanation{}},
	{"shaper check --explain", []policy.Route{}},
	{"shaper check", checked{}},
	{"shaper simulate", simulate.Report{}},
	{"shaper simulate --compare", comparison{}},
	{"shaper tc plan", []tc.Preview{}},
	{"shaper tc apply, tc clear", []tcDone{}},
	{"shaper tc show", []tc.Shown{}},
	{"shaper nft plan", nftPlanned{}},
	{"shaper nft apply, nft clear", nftChanged{}},
	{"shaper version", versionReading{}},
}

// docs/json.md lists all fields. With -update, the test writes them.
func TestJSONFields(t *testing.T) {
	const page, mark = "../../docs/json.md", "## Fields\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, have, _ := strings.Cut(string(text), mark)
	var b strings.Builder
	listed := map[reflect.Type]string{}
	for _, o := range jsonOutputs {
		root := reflect.TypeOf(o.value)
		object, shape := root, "An object:"
		if root.Kind() == reflect.Slice {
			object, shape = root.Elem(), "A list of objects:"
		}
		listed[object] = o.title
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", o.title, shape)
		listFields(&b, listed, object, "", "")
	}
	if want := b.String(); have != want {
		if !*update {
			t.Fatalf("the fields differ from those of %s; if none is gone, and none has another name or type: go test ./cmd/shaper -run TestJSONFields -update\n%s", page, want)
		}
		if err := os.WriteFile(page, []byte(head+mark+want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// What the page lists of a section about times is what JSON holds of one that says all.
func TestJSONOfSchedules(t *testing.T) {
	p, _, err := policy.Parse("shaper.toml", []byte(`
[class.all]
rate = "20mbit"
[class.acme]
parent = "all"
rate = "5mbit"
at = [{ days = "mon", from = "08:00", to = "18:00", zone = "Europe/Paris", rate = "1mbit", ceil = "2mbit" }]
[listener.gateway]
listen = "127.0.0.1:0"
upstream = "192.0.2.1:2775"
class = "acme"
`))
	if err != nil {
		t.Fatal(err)
	}
	class, _ := p.Class("acme")
	text, err := json.Marshal(class.At[0])
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	listField(&b, nil, reflect.TypeOf(class.At[0]), "at", "")
	for line := range strings.Lines(b.String()) {
		key, _, _ := strings.Cut(strings.TrimPrefix(line, "    at."), " ")
		if key = strings.TrimRight(key, "[]?\n"); !strings.Contains(string(text), fmt.Sprintf("%q:", key)) {
			t.Errorf("the page has %q, and JSON is %s", key, text)
		}
	}
}

// listFields writes a line for each field of an object. optional is "?" if what contains them may be missing.
func listFields(b *strings.Builder, listed map[reflect.Type]string, object reflect.Type, path, optional string) {
	for i := range object.NumField() {
		f := object.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous && listed[f.Type] != "":
			fmt.Fprintf(b, "    %sall of %s\n", path, listed[f.Type])
		case name == "" && f.Anonymous:
			listFields(b, listed, f.Type, path, optional)
		default:
			missing := optional
			if strings.HasPrefix(options, "omit") {
				missing = "?"
			}
			listField(b, listed, f.Type, path+name, missing)
		}
	}
}

// listField writes the lines of a field.
func listField(b *strings.Builder, listed map[reflect.Type]string, is reflect.Type, path, optional string) {
	for name := scalar(is); name == ""; name = scalar(is) {
		switch is.Kind() {
		case reflect.Pointer:
			is = is.Elem()
		case reflect.Slice, reflect.Array:
			is, path = is.Elem(), path+"[]"
		case reflect.Map:
			is, path = is.Elem(), path+".*"
		case reflect.Struct:
			if as, ok := listed[is]; ok {
				fmt.Fprintf(b, "    %s%s  %s\n", path, optional, as)
			} else {
				listFields(b, listed, is, path+".", optional)
			}
			return
		}
	}
	fmt.Fprintf(b, "    %s%s  %s\n", path, optional, scalar(is))
}

// scalar says what JSON holds a value as; "" if it has parts.
func scalar(is reflect.Type) string {
	switch {
	case is == reflect.TypeFor[stats.Seconds]():
		return "seconds"
	case is == reflect.TypeFor[time.Time]():
		return "time"
	case is.Kind() == reflect.Pointer:
		return ""
	case is.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "text"
	}
	switch is.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
		return ""
	case reflect.Interface:
		return "any"
	}
	return "number"
}

// The commands print the types of jsonOutputs, and nothing else.
func TestJSONOutputs(t *testing.T) {
	p := begin(t, base)
	p.dial()
	next := filepath.Join(t.TempDir(), "next.toml")
	os.WriteFile(next, []byte(strings.Replace(strings.ReplaceAll(base, `"c.sock"`, `"d.sock"`), "64KiB", "65KiB", 1)), 0o600)
	for _, args := range []string{"classes", "status", "why slow", "sessions", "upstreams", "fleet", "history", "diff " + next, "set slow rate=1mbit", "history",
		"shadow " + next, "shadow", "reload", "reload --rollback-after 1m", "confirm", "explain 127.0.0.2", "explain 127.0.0.2 --policy " + next, "check --explain", "check",
		"simulate --load listener=echo,rate=1mbit,count=3", "simulate --load listener=echo,rate=1mbit,count=3 --compare " + next, "version"} {
		args := strings.Fields(args)
		into := outputOf(t, args)
		out := want(t, 0, nil, append(append([]string{"-c", p.path}, args...), "--json")...)
		d := json.NewDecoder(strings.NewReader(out))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// outputOf returns a new value of what a command prints.
func outputOf(t *testing.T, args []string) any {
	t.Helper()
	title := "shaper " + args[0]
	for _, option := range []string{"--compare", "--explain"} {
		if slices.Contains(args, option) {
			title += " " + option
		}
	}
	for _, o := range jsonOutputs {
		if o.title == title {
			return reflect.New(reflect.TypeOf(o.value)).Interface()
		}
	}
	t.Fatalf("nothing says what %s prints", title)
	return nil
}
