package policy

import (
	"fmt"
	"strings"
)

// A checker holds a policy against itself: names that are used exist, and
// every limit can hold where it is used.
type checker struct {
	*report
	p         *Policy
	classes   map[string]*Class
	listeners map[string]*Listener
	carries   map[string]map[Protocol]bool // by class: the protocols of what it limits
	depth     map[string]int               // by class; see depthOf
}

// given reports whether the file has the key.
func (c *checker) given(key string) bool {
	_, ok := c.at[key]
	return ok
}

// badUnder reports whether something is wrong with a section.
func (c *checker) badUnder(section string) bool {
	for key := range c.bad {
		if strings.HasPrefix(key, section) {
			return true
		}
	}
	return false
}

// exists reports whether a class exists, and its absence as a mistake.
func (c *checker) exists(key, name string) bool {
	if !c.sound(key) || c.classes[name] != nil {
		return c.sound(key)
	}
	allowed := hintOf(c, name, "classes", c.p.Classes, className)
	if len(c.p.Classes) == 0 {
		allowed = fmt.Sprintf("write a section [class.%s]", plainName(name))
	}
	c.wrong(key, fmt.Sprintf("there is no class %q", name), allowed)
	return false
}

// enoughHints is after how many mistakes no name is looked for any more that
// may have been meant: each search compares all names.
const maxHints = 100

func hintOf[T any](c *checker, name, all string, of []T, nameOf func(T) string) string {
	if len(c.errs) >= maxHints {
		return "one of the " + all + " of this file"
	}
	return Hint(name, all, namesOf(of, nameOf))
}

// above returns the class above one of which the path is sound; nil for a root.
func (c *checker) above(class *Class) *Class {
	if c.depth[class.Name] <= 1 {
		return nil
	}
	return c.classes[class.Parent]
}
