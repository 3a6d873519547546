package policy

import (
	"slices"
	"strings"
)

// A schema is a JSON schema.
type schema map[string]any

// Schema returns a JSON schema (draft 7) of policy files, for editors. It knows sections, keys,
// types, words and the bounds of integers. It does not know what only the rest of the file can say,
// such as whether a class exists.
func Schema() any {
	properties := schema{}
	for _, s := range Describe() {
		section := tableSchema(s.Keys)
		if s.Name == "listener" {
			section.requireByMode()
		}
		switch {
		case strings.HasPrefix(s.Header, "[["):
			section = schema{"type": "array", "items": section}
		case strings.Contains(s.Header, ".NAME"):
			section = schema{"type": "object", "additionalProperties": section, "propertyNames": schema{"pattern": "^[A-Za-z0-9_-]{1,64}$"}}
		case strings.Contains(s.Header, "."):
			section = schema{"type": "object", "additionalProperties": section, "propertyNames": schema{"pattern": "^[^/: ]{1,15}$"}}
		}
		section["description"] = s.Header
		properties[s.Name] = section
	}
	return schema{"$schema": "http://json-schema.org/draft-07/schema#", "title": "shaper.toml",
		"type": "object", "additionalProperties": false, "properties": properties}
}

// tableSchema returns the schema of a table with these keys.
func tableSchema(keys []Setting) schema {
	properties, required := schema{}, []string{}
	families := schema{}
	for _, k := range keys {
		if family, ok := strings.CutSuffix(k.Name, "NAME"); ok {
			families["^"+family+"."] = k.schema()
			continue
		}
		properties[k.Name] = k.schema()
		if k.Required {
			required = append(required, k.Name)
		}
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(families) > 0 {
		s["patternProperties"] = families
	}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// requireByMode requires what a listener needs in its mode.
func (s schema) requireByMode() {
	s["if"] = schema{"required": []string{"mode"}, "properties": schema{"mode": schema{"enum": entries}}}
	s["then"] = schema{"required": []string{"allow"}}
	s["else"] = schema{"required": []string{"upstream"}}
}

// schema returns the schema of the value of a key.
func (k Setting) schema() schema {
	var types []schema
	if k.Text && k.Words != nil {
		types = append(types, schema{"type": "string", "enum": k.Words})
	} else if k.Text {
		types = append(types, schema{"type": "string"})
	}
	if k.Integer && k.Least != k.Most {
		types = append(types, schema{"type": "integer", "minimum": k.Least, "maximum": k.Most})
	} else if k.Integer {
		types = append(types, schema{"type": "integer"})
	}
	if k.Boolean {
		types = append(types, schema{"type": "boolean"})
	}
	switch {
	case k.Table && k.Keys == nil:
		types = append(types, schema{"type": "object"})
	case k.Table:
		types = append(types, tableSchema(k.Keys))
	}
	if k.List {
		types = append(types, schema{"type": "array", "minItems": 1, "items": anyOf(slices.Clone(types))})
	}
	s := anyOf(types)
	s["description"] = k.describe()
	return s
}

// describe says what the value may be, and its default.
func (k Setting) describe() string {
	if k.Required {
		return k.Allowed + "; required"
	}
	return k.Allowed + "; default: " + k.Default
}

// anyOf returns the schema of a value that has one of some types.
func anyOf(types []schema) schema {
	if len(types) == 1 {
		return types[0]
	}
	return schema{"anyOf": types}
}
