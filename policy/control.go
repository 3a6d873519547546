package policy

// ControlPath returns the control socket that a policy file names, as far as
// the file can be understood: whoever has broken the file still has to reach
// the daemon. Where it names none, that is the default.
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
