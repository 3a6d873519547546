package policy

import (
	"encoding/json"
	"testing"
)

// TestFleetWarnings names what is legal in a fleet and probably not meant.
func TestFleetWarnings(t *testing.T) {
	const rest = "[listener.x]\nlisten = \"127.0.0.1:2775\"\nprotocol = \"smpp\"\nupstream = \"192.0.2.1:2775\"\nclass = \"a\"\n"
	const fleet = "[fleet.prod]\naddress = \"10.0.0.5:6379\"\n"
	for name, c := range map[string]struct{ file, want string }{
		"nothing":  {fleet + "[class.a]\nrate = \"20 messages/s\"\nheadroom = \"2%\"\nshared = \"prod\"\n", ""},
		"unused":   {fleet + "[class.a]\nrate = \"20 messages/s\"\n", "fleet.prod"},
		"headroom": {fleet + "[class.a]\nrate = \"20 messages/s\"\nshared = \"prod\"\n", "class.a.shared"},
		"narrow":   {fleet + "[class.a]\nrate = \"100 messages/s\"\nheadroom = \"0.4%\"\nshared = \"prod\"\n", "class.a.headroom"},
		"enough":   {fleet + "[class.a]\nrate = \"1000 messages/s\"\nheadroom = \"5%\"\nshared = \"prod\"\n", ""},
		"a burst":  {fleet + "[class.a]\nrate = \"20 messages/s\"\nalgorithm = \"gcra\"\nburst = \"5 messages\"\nshared = \"prod\"\n", ""},
		"fallback": {fleet + "fallback = \"21 messages/s\"\n[class.a]\nrate = \"20 messages/s\"\nheadroom = \"2%\"\nshared = \"prod\"\n", "class.a.shared"},
		"device":   {fleet + "[class.a]\nrate = \"20mbit\"\nshared = \"prod\"\n[tc.eth0]\nclass = \"a\"\n", "class.a.shared"},
		"insecure": {fleet + "tls = { insecure = true }\n[class.a]\nrate = \"20 messages/s\"\nheadroom = \"2%\"\nshared = \"prod\"\n", "fleet.prod.tls.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := Parse("shaper.toml", []byte(c.file+rest))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, w := range warnings {
				got += w.Key
			}
			if got != c.want {
				t.Errorf("it warns of %q, want %q: %v", got, c.want, warnings)
			}
		})
	}
}

// TestFallbackIsText prints and reads all fallbacks.
func TestFallbackIsText(t *testing.T) {
	for _, text := range []string{`"share"`, `"stop"`, `"10 messages/s"`} {
		var f Fallback
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		if back, err := json.Marshal(f); err != nil || string(back) != text {
			t.Errorf("%s is printed as %s, %v", text, back, err)
		}
	}
}
