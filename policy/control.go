package policy

// ControlPath returns the path of the control socket that a policy file names, or the
// default. It tolerates mistakes elsewhere in the file, because an operator who broke the
// file still has to reach the daemon.
func ControlPath(file string, data []byte) string {
	daemon := DefaultDaemon()
	data = withoutBOM(data)
	root, _ := parseNodes(newReport(file, data), data)
	if section := root.get("daemon"); section != nil {
		if n := section.get("control"); n != nil && n.kind == aString {
			if path, err := parseControl(n.text); err == nil {
				daemon.Control = path
			}
		}
	}
	return beside(file, daemon.Control)
}
