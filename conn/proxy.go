package conn

import (
	"shaper/entry"
	"shaper/policy"
)

// header returns the PROXY header that the listener sends; none if it sends none.
func (c *terms) header(told entry.Proxy) []byte {
	switch c.SendProxy {
	case policy.ProxyV1:
		return told.AppendLine(nil)
	case policy.ProxyV2:
		return told.AppendBinary(nil, false)
	}
	return nil
}
