package nft

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"shaper/policy"
)

// String returns the plan as a shell script that does what Apply does.
func (p *Plan) String() string {
	return "nft -f - <<'END'\n" + p.Table() + "END\n" + strings.Join(p.Routes(), "")
}

// Table returns the table, as nft(8) reads it.
func (p *Plan) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", tableName)
	for _, s := range p.sets {
		var all []string
		for _, prefix := range s.prefixes {
			all = append(all, prefix.String())
		}
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype %s\n\t\tflags interval\n\t\telements = { %s }\n\t}\n", s.name, s.kind().Name, strings.Join(all, ", "))
	}
	for _, c := range p.chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.name)
		if c.hook != nil {
			fmt.Fprintf(&b, "\t\t%s\n", c.hook.words)
		}
		for _, r := range c.rules {
			fmt.Fprintf(&b, "\t\t%s\n", r.words())
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// words returns a rule as nft(8) has it.
func (r rule) words() string {
	var words []string
	if to := r.to.words(); to != "" {
		words = append(words, to)
	}
	for _, s := range r.does {
		words = append(words, s.words)
	}
	return strings.Join(words, " ")
}

// Routes returns the commands of ip(8) that route marked packets to this machine. A second time
// they change nothing.
func (p *Plan) Routes() (lines []string) {
	for _, family := range p.families {
		ip := "ip"
		if family == unix.AF_INET6 {
			ip = "ip -6"
		}
		rule := fmt.Sprintf("pref %d fwmark %#x lookup %d", rulePriority, policy.InterceptedMark, routeTable)
		lines = append(lines, fmt.Sprintf("%[1]s rule list %[2]s | grep -q . || %[1]s rule add %[2]s\n", ip, rule),
			fmt.Sprintf("%s route replace local default dev lo table %d\n", ip, routeTable))
	}
	return lines
}
