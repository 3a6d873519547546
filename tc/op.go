package tc

// verb is what is done to an object.
type verb string

const (
	add     verb = "add"
	change  verb = "change"
	replace verb = "replace" // add in the place of another, whatever that is
	del     verb = "delete"
)

// op is one change of the kernel.
type op struct {
	verb   verb
	object Object
}

// wholeList stands for all filters of a list.
type wholeList struct{}

func (wholeList) options() []byte { return nil }

func (wholeList) words() string { return "" }

// differ gathers the changes.
type differ struct {
	*snapshot
	want    []Object
	have    map[place]Object
	taken   map[place]bool  // places of the plan
	emptied map[listID]bool // lists that are gone
	ops     []op
}

func (d *differ) do(v verb, o Object) { d.ops = append(d.ops, op{v, o}) }
