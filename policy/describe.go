package policy

// Section describes a section of a policy file.
type Section struct {
	Name   string
	Header string // as it stands in a file: "[class.NAME]"
	Keys   []Setting
}

// Setting describes a key of a section, and what its value may be: of one of several types.
type Setting struct {
	Name     string
	Required bool
	Allowed  string // in words
	Default  string // as shaper check --all prints it

	Text    bool
	Words   []string // the texts that are allowed; nil if there are others
	Integer bool
	Least   int64 // bounds of an integer; both are 0 if it has none
	Most    int64
	Boolean bool
	List    bool      // a list of such values
	Table   bool      // a table
	Keys    []Setting // of the table; nil if any are
}

// Describe returns what a policy may contain, from the same tables by which it is read.
func Describe() []Section {
	listener := DefaultListener("", TCP)
	listener.LengthPrefix, listener.Host = "", ""
	return []Section{
		{"daemon", "[daemon]", keysOf(daemonFields, DefaultDaemon())},
		{"class", "[class.NAME]", keysOf(classFields, DefaultClass(""))},
		{"listener", "[listener.NAME]", keysOf(listenerFields, listener)},
		{"rule", "[[rule]]", keysOf(ruleFields, Rule{})},
		{"tc", "[tc.DEVICE]", keysOf(tcFields, DefaultTC(""))},
		{"fleet", "[fleet.NAME]", keysOf(fleetFields, DefaultFleet(""))},
	}
}

// keysOf describes the fields that this version supports.
func keysOf[T any](fields []field[T], defaults T) (all []Setting) {
	for _, f := range fields {
		k := Setting{Name: f.name, Required: f.required, Allowed: f.form, Default: f.get(&defaults),
			Text: f.takes&texts != 0, Integer: f.takes&integers != 0, Boolean: f.takes&booleans != 0, List: f.takes&lists != 0,
			Table: f.decodeTable != nil}
		if f.keys != nil {
			k.Keys = f.keys()
		}
		// The error about an impossible value says which values are possible.
		if err := f.set(new(T), ""); err != nil && complaintOf(err).domain != nil {
			d := complaintOf(err).domain
			k.Words, k.Least, k.Most = d.words, d.least, d.most
		}
		all = append(all, k)
	}
	return all
}
