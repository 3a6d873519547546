package policy

// byParent returns the children of each class, in file order. The classes without a parent
// are those of "".
func (p *Policy) byParent() map[string][]*Class {
	children := map[string][]*Class{}
	for i := range p.Classes {
		class := &p.Classes[i]
		children[class.Parent] = append(children[class.Parent], class)
	}
	return children
}

// Tree returns a class and all classes below it, each after its parent. It returns nil if
// there is no such class.
func (p *Policy) Tree(root string) (all []Class) {
	class, ok := p.Class(root)
	if !ok {
		return nil
	}
	children := p.byParent()
	var walk func(*Class)
	walk = func(c *Class) {
		all = append(all, *c)
		for _, child := range children[c.Name] {
			walk(child)
		}
	}
	walk(&class)
	return all
}

// paths returns, for each class, its path from the root of its tree, without the root itself: if b is a
// child of a, and a of the root, the path of b is "/a/b". That of a root is "".
func (p *Policy) paths() map[string]string {
	paths := map[string]string{}
	children := p.byParent()
	var walk func(*Class, string)
	walk = func(c *Class, path string) {
		paths[c.Name] = path
		for _, child := range children[c.Name] {
			walk(child, path+"/"+child.Name)
		}
	}
	for _, root := range children[""] {
		walk(root, "")
	}
	return paths
}

// roots returns the names of the root classes of a device: that of what it sends, and that of what
// it receives, if it has one.
func (t *TC) roots() []string {
	if t.Ingress == "" {
		return []string{t.Class}
	}
	return []string{t.Class, t.Ingress}
}
