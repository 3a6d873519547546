package policy

// places tells where in the file the addresses stand that the policy binds.
// Whether they can be bound shows only when the file has been read.
type places map[string]place

type place struct{ line, column int }

// notePlaces keeps the places of what the file gives; a default has none.
func (p *Policy) notePlaces(r *report) {
	p.places = places{}
	note := func(name, key string) {
		if offset, given := r.at[key]; given {
			line, column := r.position(offset)
			p.places[name] = place{line, column}
		}
	}
	note("daemon.control", "daemon.control")
	note("daemon.http", "daemon.http")
	for _, l := range p.Listeners {
		key := join("listener", l.Name) + ".listen"
		note(key, key)
		for i, address := range l.Listen {
			note(key+itemMark+address, item(key, i))
		}
	}
}

// BindError returns an error about an address that the policy binds, at its
// place in the file: "daemon.control", "daemon.http" or "listener.NAME.listen".
// Of a list it is the place of that address, or of the list if it has none.
func (p *Policy) BindError(key, address, problem, allowed string) Error {
	at, ok := p.places[key+itemMark+address]
	if !ok {
		at = p.places[key]
	}
	return Error{File: p.Path, Line: at.line, Column: at.column, Key: key, Problem: problem, Allowed: allowed}
}
