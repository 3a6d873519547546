package sock

import (
	"net/netip"
	"testing"
)

// An address stays the same on its way to the kernel and back. The kernel gets a zone given
// by name or by number.
func TestSockname(t *testing.T) {
	for text, scope := range map[string]uint32{
		"192.0.2.1:80":        0,
		"[2001:db8::1]:65535": 0,
		"[fe80::1%lo]:80":     1,
		"[fe80::1%1]:80":      1,
		"[fe80::1%no-such]:1": 0,
	} {
		ap := netip.MustParseAddrPort(text)
		name, _ := socknameOf(ap)
		if got := name.addrPort(); got != netip.AddrPortFrom(ap.Addr().WithZone(""), ap.Port()) {
			t.Errorf("%s comes back as %s", text, got)
		}
		if ap.Addr().Is6() && name.Scope_id != scope {
			t.Errorf("%s has scope %d, want %d", text, name.Scope_id, scope)
		}
	}
}
