package policy

// byParent returns the children of each class, in file order. The classes without a parent
// are those of "".
func (p *Policy) byParent() map[string][]*Class {
	under := map[string][]*Class{}
	for i := range p.Classes {
		under[p.Classes[i].Parent] = append(under[p.Classes[i].Parent], &p.Classes[i])
	}
	return under
}

// Tree returns a class and all classes below it, each after its parent. It returns nil if
// there is no such class.
func (p *Policy) Tree(root string) (all []Class) {
	class, ok := p.Class(root)
	if !ok {
		return nil
	}
	under := p.byParent()
	var walk func(*Class)
	walk = func(c *Class) {
		all = append(all, *c)
		for _, child := range under[c.Name] {
			walk(child)
		}
	}
	walk(&class)
	return all
}

// paths returns the names on the way from the root to each class, without that of the root.
func (p *Policy) paths() map[string]string {
	paths := map[string]string{}
	under := p.byParent()
	var walk func(*Class, string)
	walk = func(c *Class, path string) {
		paths[c.Name] = path
		for _, child := range under[c.Name] {
			walk(child, path+"/"+child.Name)
		}
	}
	for _, root := range under[""] {
		walk(root, "")
	}
	return paths
}

// roots returns the roots of the trees of a device.
func (t *TC) roots() []string {
	if t.Ingress == "" {
		return []string{t.Class}
	}
	return []string{t.Class, t.Ingress}
}
