package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A checker checks that the names in a policy exist, and that every limit can hold where it
// is used. One goroutine uses it, during Load or With.
type checker struct {
	*report
	p         *Policy
	classes   map[string]*Class            // by name
	listeners map[string]*Listener         // by name
	carries   map[string]map[Protocol]bool // by class: the protocols of the items that it limits
	depth     map[string]int               // by class; see depthOf
}

// badUnder reports whether a key of the section has a mistake.
func (c *checker) badUnder(section string) bool {
	for key := range c.bad {
		if strings.HasPrefix(key, section) {
			return true
		}
	}
	return false
}

// exists reports whether the class at key exists and the key has no mistake. If the class
// does not exist, that is a mistake, unless the word class of a section is misspelt.
func (c *checker) exists(key, name string) bool {
	if !c.sound(key, "class") || c.classes[name] != nil {
		return c.sound(key) && c.classes[name] != nil
	}
	others := slices.DeleteFunc(slices.Clone(c.p.Classes), func(one Class) bool {
		return key == join("class", one.Name)+".parent" // nobody is its own parent
	})
	allowed := hintOf(c, name, "classes", others, className)
	if len(others) == 0 {
		allowed = fmt.Sprintf("write a section [class.%s]", plainName(name))
	}
	c.wrong(key, noClass(name), allowed)
	return false
}

// maxHints is the number of mistakes after which hints no longer name a similar name,
// since each search compares all names.
const maxHints = 100

// hintOf returns a hint for a name that does not exist. all says in the plural what it
// names: "classes".
func hintOf[T any](c *checker, name, all string, of []T, nameOf func(T) string) string {
	if len(c.errs) >= maxHints {
		return "one of the " + all + " of this file"
	}
	return Hint(name, all, namesOf(of, nameOf))
}

// above returns the parent of a class. It returns nil if there is none, or its key parent
// has a mistake.
func (c *checker) above(class *Class) *Class {
	if c.depth[class.Name] <= 1 {
		return nil
	}
	return c.classes[class.Parent]
}
