package policy

import (
	"path/filepath"
	"strings"
)

// places holds, by key, the positions of the addresses that the policy binds and of the files
// that it names. Whether they can be bound or read is only known after the policy is loaded.
type places map[string]place

// notePlaces fills in Policy.places. A default has no place.
func (p *Policy) notePlaces(r *report) {
	p.places = places{}
	note := func(name, key string) {
		if offset, given := r.at[key]; given {
			p.places[name] = r.place(offset)
		}
	}
	note("daemon.control", "daemon.control")
	note("daemon.http", "daemon.http")
	note("daemon.state", "daemon.state")
	for _, f := range p.Fleets {
		key := join("fleet", f.Name)
		note(key+".tls", key+".tls")
		note(key+".password_file", key+".password_file")
		note(key+".sentinel_password_file", key+".sentinel_password_file")
	}
	p.tlsPaths(func(key string, _ *string) { note(key, key) })
	for _, l := range p.Listeners {
		listener := join("listener", l.Name)
		for _, key := range []string{".listen", ".mode", ".upstream_tls", ".unix.user", ".unix.group"} {
			note(listener+key, listener+key)
		}
		key := listener + ".listen"
		for i, address := range l.Listen {
			note(key+itemMark+address, item(key, i))
		}
	}
}

// BindError returns an error about an address that the policy binds, or a file that it names,
// with its position in the policy file. The key is, for example, "daemon.control",
// "daemon.http", "listener.NAME.listen" or "listener.NAME.tls.key". If the value is a list,
// the position is that of the address, or that of the list if the address is not in it.
func (p *Policy) BindError(key, address, problem, allowed string) Error {
	at, ok := p.places[key+itemMark+address]
	if !ok {
		at = p.places[key]
	}
	if at.file == "" {
		at.file = p.Path // a default has no place
	}
	return Error{File: at.file, Line: at.line, Column: at.column, Key: key, Problem: problem, Allowed: allowed}
}

// tlsPaths calls do for each path in the keys users, tls and upstream_tls of listeners and tls of fleets, also for "".
func (p *Policy) tlsPaths(do func(key string, path *string)) {
	for i := range p.Listeners {
		key := join("listener", p.Listeners[i].Name)
		do(key+".users", &p.Listeners[i].Users)
		if s := p.Listeners[i].TLS; s != nil {
			do(key+".tls.cert", &s.Cert)
			do(key+".tls.key", &s.Key)
			do(key+".tls.client_ca", &s.ClientCA)
		}
		if u := p.Listeners[i].UpstreamTLS; u != nil {
			do(key+".upstream_tls.ca", &u.CA)
			do(key+".upstream_tls.cert", &u.Cert)
			do(key+".upstream_tls.key", &u.Key)
		}
	}
	for i := range p.Fleets {
		if u := p.Fleets[i].TLS; u != nil {
			key := join("fleet", p.Fleets[i].Name) + ".tls"
			do(key+".ca", &u.CA)
			do(key+".cert", &u.Cert)
			do(key+".key", &u.Key)
		}
	}
}

// HideUntried hides the paths of secrets that may be the secrets themselves: relative ones, which come to
// lie below the directory of the policy, unless the policy in force has them and has thus read them.
func (p *Policy) HideUntried(inForce *Policy) {
	tried := map[string]bool{"": true}
	inForce.secretPaths(func(path *string) { tried[*path] = true })
	p.secretPaths(func(path *string) {
		below, err := filepath.Rel(filepath.Dir(p.Path), *path)
		if err == nil && filepath.IsLocal(below) && !tried[*path] {
			*path = notShown
		}
	})
}

// secretPaths calls do for each path of a file with a secret, also for "".
func (p *Policy) secretPaths(do func(path *string)) {
	p.tlsPaths(func(key string, path *string) {
		if strings.HasSuffix(key, ".key") || strings.HasSuffix(key, ".users") {
			do(path)
		}
	})
	p.passwordPaths(do)
}

// passwordPaths calls do for the path of each file with a password of fleets, also for "".
func (p *Policy) passwordPaths(do func(path *string)) {
	for i := range p.Fleets {
		do(&p.Fleets[i].PasswordFile)
		do(&p.Fleets[i].SentinelPasswordFile)
	}
}
