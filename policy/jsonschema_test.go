package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compiled returns the schema as a validator of its own understands it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("shaper.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("shaper.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate checks a policy with the schema. It reports whether the policy is TOML at all.
func validate(t *testing.T, s *jsonschema.Schema, policy []byte) (isTOML bool, err error) {
	t.Helper()
	var all map[string]any
	if err := toml.Unmarshal(policy, &all); err != nil {
		return false, nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return true, s.Validate(doc)
}

// shown matches the policies that pages show.
var shown = regexp.MustCompile("(?s)```toml\n(.*?)```")

// The schema accepts every valid policy, also those that pages show.
func TestSchemaAccepts(t *testing.T) {
	s := compiled(t)
	files := []string{shipped}
	for _, pattern := range []string{"testdata/good/*.toml", "../docs/*.toml", "../docs/*/*.toml", "../packaging/*.toml", "../tests/testdata/*.toml"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatal(pattern, some, err)
		}
		files = append(files, some...)
	}
	for _, file := range files {
		if isTOML, err := validate(t, s, mustRead(t, file)); !isTOML || err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, page := range []string{"../README.md", "../docs/protocols.md", "../docs/recipes.md", "../docs/entries.md"} {
		policies := shown.FindAllSubmatch(mustRead(t, page), -1)
		if len(policies) == 0 {
			t.Errorf("%s shows no policy", page)
		}
		for _, policy := range policies {
			if isTOML, err := validate(t, s, policy[1]); !isTOML || err != nil {
				t.Errorf("%s: %v\n%s", page, err, policy[1])
			}
		}
	}
}

// structural matches what errors say about mistakes that the schema must find too.
var structural = regexp.MustCompile(`^(unknown key|it is (a|an) .*|.* is (an integer|a boolean|a number with a point)|"[^"]*" is not known|.* is out of range|the list is empty|.* cannot be a name)$`)

// The schema refuses every policy of testdata that has a mistake in sections, keys, types, words
// or integers.
func TestSchemaRefuses(t *testing.T) {
	s := compiled(t)
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, file := range files {
		isTOML, invalid := validate(t, s, mustRead(t, file))
		if !isTOML {
			continue
		}
		var errs Errors
		if _, _, err := Load(file); !errors.As(err, &errs) {
			t.Fatal(file, err)
		}
		must := slices.ContainsFunc(errs, func(e Error) bool {
			missing := strings.HasPrefix(e.Problem, "it is missing") && !strings.HasPrefix(e.Key, "end")
			return missing || structural.MatchString(e.Problem)
		})
		if must && invalid == nil {
			t.Errorf("the schema accepts %s: %v", file, errs)
		}
		if invalid != nil {
			refused++
		}
	}
	if refused < 60 {
		t.Errorf("the schema refuses %d of %d files", refused, len(files))
	}
}

// The schema describes every section that a policy may have, and every key has a description.
func TestSchemaIsComplete(t *testing.T) {
	var names []string
	for _, s := range Describe() {
		names = append(names, s.Name)
		for _, k := range s.Keys {
			if k.Allowed == "" || !k.Text && !k.Integer && !k.Boolean && !k.Table || k.Table && k.Keys == nil {
				t.Errorf("%s %s: %+v", s.Header, k.Name, k)
			}
		}
	}
	if !slices.Equal(names, sections) {
		t.Errorf("described are %v, want %v", names, sections)
	}
}
