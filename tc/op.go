package tc

// verb is what is done to an object.
type verb string

const (
	add     verb = "add"
	change  verb = "change"
	replace verb = "replace" // add, in place of whatever is there
	del     verb = "delete"
)

// op is one change of the kernel.
type op struct {
	verb   verb
	object Object
}

// wholeList stands for all filters of one preference.
type wholeList struct{}

func (wholeList) options() []byte { return nil }

func (wholeList) words() string { return "" }

// differ computes the changes from a snapshot to a plan. One goroutine uses it.
type differ struct {
	*snapshot
	want    []Object         // the plan
	have    map[place]Object // what the kernel has of ours, without what ops delete
	wanted  map[place]bool   // the places of the plan
	emptied map[listID]bool  // the lists that ops delete
	ops     []op
}

// do appends a change.
func (d *differ) do(v verb, o Object) { d.ops = append(d.ops, op{v, o}) }
