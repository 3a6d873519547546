package conn

import (
	"cmp"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"

	"shaper/policy"
	"shaper/sock"
)

// findOwners sets who may connect to the unix sockets of each listener. It returns an error for
// each user and each group that this machine does not have.
func (c *Change) findOwners() (errs []error) {
	c.access = map[string]sock.Access{}
	for _, l := range c.policy.Listeners {
		var a policy.UnixAccess
		if l.Unix != nil {
			a = *l.Unix
		}
		access := sock.Access{Mode: fs.FileMode(cmp.Or(a.Mode, policy.DefaultUnixMode))}
		var noUser, noGroup error
		if access.UID, noUser = idOf(a.User, userID); noUser != nil {
			errs = append(errs, fmt.Errorf("listener.%s.unix.user: %w", l.Name, noUser))
		}
		if access.GID, noGroup = idOf(a.Group, groupID); noGroup != nil {
			errs = append(errs, fmt.Errorf("listener.%s.unix.group: %w", l.Name, noGroup))
		}
		c.access[l.Name] = access
	}
	return errs
}

// idOf returns the number of a user or a group, which may be given as a number; -1 for "".
func idOf(name string, lookup func(string) (string, error)) (int, error) {
	if name == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	id, err := lookup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(id)
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
