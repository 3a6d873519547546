package fleet

import (
	_ "embed"
	"strconv"
)

// reserve is the script that runs on the store; model.go is the same in Go.
//
//go:embed reserve.lua
var reserve string

// peers is the script that lists the members of a class.
//
//go:embed peers.lua
var peers string

// peersKeys is how many keys that takes.
const peersKeys = 2

// scriptKeys is how many keys the script takes.
const scriptKeys = 5

// scriptArgs returns the keys and arguments of a call to the store named store. The answer begins with
// echo. The name of the class is the hash tag of the keys: a cluster keeps all of them in one slot.
func scriptArgs(prefix, store string, echo int64, c *Call) []any {
	class := classKey(prefix, c.Class.Name)
	args := []any{class, class + ":members", class + ":bucket:" + c.Key, class + ":line:" + c.Key, class + ":paused", string(c.Op), c.Member, store, strconv.FormatInt(echo, 10)}
	for _, n := range c.numbers() {
		args = append(args, strconv.FormatInt(n, 10))
	}
	return args
}

// peersArgs returns the keys and arguments of peers.lua.
func peersArgs(prefix, class string, echo int64) []any {
	key := classKey(prefix, class)
	return []any{key, key + ":members", strconv.FormatInt(echo, 10)}
}

func classKey(prefix, class string) string { return prefix + "{" + class + "}" }
