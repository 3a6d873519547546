package policy

import "strconv"

const (
	costForm     = `an integer from 1 to 1000000000, or a table like { json = "max_tokens", default = 1000 }, with json, header, bytes or segments`
	settleForm   = `a table like { json = "usage.total_tokens" } or { header = "X-Cost" }`
	signalForm   = `a table like { json = "status", equals = ["1"] }`
	jsonPathForm = `names with points between them, like "usage.total_tokens" or "messages.0.status"`
	unitsForm    = `an integer from 1 to 1000000000`
	defaultForm  = `an integer from 1 to 1000000000`
	equalsForm   = `a value, or a list of them, like ["1", "throttled"]`
)

var parseUnits = integer64(1, 1_000_000_000, unitsForm)

// costField is the key cost of a class.
var costField = func() field[Class] {
	f := nested("cost", costForm, func(c *Class) **Cost { return &c.Cost }, costFields, false)
	table, parse := f.get, integer64(1, 1_000_000_000, costForm)
	f.takes = integers
	f.set = func(c *Class, s string) error {
		n, err := parse(s)
		if err == nil {
			c.Cost = &Cost{Units: n}
		}
		return err
	}
	f.get = func(c *Class) string {
		if c.Cost != nil && c.Cost.Units > 0 {
			return strconv.FormatInt(c.Cost.Units, 10)
		}
		return table(c)
	}
	return f
}()

var costFields = []field[Cost]{
	one("header", fieldNameForm, func(c *Cost) *string { return &c.Header }, parseFieldName),
	one("json", jsonPathForm, func(c *Cost) *Path { return &c.JSON }, parseJSONPath),
	onlyIntegers(one("bytes", unitsForm, func(c *Cost) *int64 { return &c.Bytes }, parseUnits)),
	yesNo("segments", func(c *Cost) *bool { return &c.Segments }),
	onlyIntegers(one("default", defaultForm, func(c *Cost) *int64 { return &c.Default }, parseUnits)),
	onlyIntegers(one("max", unitsForm, func(c *Cost) *int64 { return &c.Max }, parseUnits)),
}

var settleFields = []field[Place]{
	one("header", fieldNameForm, func(p *Place) *string { return &p.Header }, parseFieldName),
	one("json", jsonPathForm, func(p *Place) *Path { return &p.JSON }, parseJSONPath),
}

var signalFields = []field[Signal]{
	one("header", fieldNameForm, func(s *Signal) *string { return &s.Header }, parseFieldName),
	one("json", jsonPathForm, func(s *Signal) *Path { return &s.JSON }, parseJSONPath),
	require(alsoIntegers(many("equals", equalsForm, func(s *Signal) *[]string { return &s.Equals }, anyText))),
}

// parseJSONPath reads the path of a value in JSON.
func parseJSONPath(s string) (Path, error) {
	if problem := Path(s).problem(); problem != "" {
		return "", complain(jsonPathForm, "%q %s", s, problem)
	}
	return Path(s), nil
}

// integer64 is integer for larger ones.
func integer64(least, most int64, form string) func(string) (int64, error) {
	parse := integer(least, most, form)
	return func(s string) (int64, error) {
		n, err := parse(s)
		return int64(n), err
	}
}
