package upstream

import (
	"net/netip"
	"os"
	"strings"
)

// inHosts returns the addresses that a file like /etc/hosts (hosts(5)) has for a host, in their
// order.
func inHosts(path, host string) (all []netip.Addr) {
	host = strings.TrimSuffix(host, ".")
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(words[0])
		if err != nil {
			continue
		}
		for _, name := range words[1:] {
			if strings.EqualFold(strings.TrimSuffix(name, "."), host) {
				all = append(all, addr.Unmap())
				break
			}
		}
	}
	return all
}
