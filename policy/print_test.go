package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteTree(t *testing.T) {
	p := mustParse(t, `
[class.a]
rate = "20mbit"
[class.b]
algorithm = "token"
rate = "200 packets/s"
burst = "50 packets"
[class.c]
parent = "a"
rate = "5mbit"
ceil = "10mbit"
weight = 2
[listener.x]
listen = "127.0.0.1:53"
protocol = "udp"
upstream = "192.0.2.1:53"
class = "b"
idle_timeout = "2min"
[[rule]]
source = ["10.1.0.0/16", "fd00::/8"]
port = 53
class = "a"
`)
	p.Hash = "0123456789ab"
	var b strings.Builder
	if err := p.WriteTree(&b); err != nil {
		t.Fatal(err)
	}
	want := `test.toml  0123456789ab
├─ daemon
│     control     /run/shaper/control.sock  (default)
│     http        127.0.0.1:9780            (default)
│     http_hosts  none                      (default)
│     state       $STATE_DIRECTORY/state    (default)
│     drain       30s                       (default)
│     include     none                      (default)
│     punctual    true                      (default)
├─ class a
│  │  parent           none                (default)
│  │  algorithm        leaky               (default)
│  │  rate             20mbit
│  │  headroom         0%                  (default)
│  │  also             none                (default)
│  │  at               none                (default)
│  │  queue            1000 items or 1MiB  (default)
│  │  max_wait         none                (default)
│  │  overflow         by protocol         (default)
│  │  per              none                (default)
│  │  max_connections  none                (default)
│  │  shadow           false               (default)
│  │  shared           none                (default)
│  └─ class c
│        parent           a
│        algorithm        leaky               (default)
│        rate             5mbit
│        ceil             10mbit
│        headroom         0%                  (default)
│        also             none                (default)
│        at               none                (default)
│        queue            1000 items or 1MiB  (default)
│        max_wait         none                (default)
│        overflow         by protocol         (default)
│        priority         4                   (default)
│        weight           2
│        per              none                (default)
│        max_connections  none                (default)
│        shadow           false               (default)
│        shared           none                (default)
├─ class b
│     parent           none                (default)
│     algorithm        token
│     rate             200 packets/s
│     burst            50 packets
│     headroom         0%                  (default)
│     also             none                (default)
│     at               none                (default)
│     queue            1000 items or 1MiB  (default)
│     max_wait         none                (default)
│     overflow         by protocol         (default)
│     per              none                (default)
│     max_connections  none                (default)
│     shadow           false               (default)
│     shared           none                (default)
├─ listener x
│     listen           127.0.0.1:53
│     protocol         udp
│     mode             forward  (default)
│     upstream         192.0.2.1:53
│     balance          order    (default)
│     class            b
│     return_class     none     (default)
│     bind             any      (default)
│     connect_timeout  10s      (default)
│     idle_timeout     2min
│     max_session_age  none     (default)
│     max_sessions     65536    (default)
│     send_proxy       none     (default)
└─ rules, the first match wins
      1  line 19  source 10.1.0.0/16, fd00::/8, port 53, class a
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// JSON does not change a policy. The daemon sends it to the command line so.
func TestJSON(t *testing.T) {
	p, _, err := Load("testdata/good/full.toml")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, &back, comparers...); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	for _, part := range []string{`"rate":"20mbit"`, `"burst":"64KiB"`, `"port":["2775"]`, `"bind":["192.0.2.1","fd00::1"]`, `"max_wait":"8s"`} {
		if !strings.Contains(string(data), part) {
			t.Errorf("no %s in %s", part, data)
		}
	}
}

// WriteWritten prints only the keys in the files, also if they have their default, and quantities as
// they are written there.
func TestWriteWritten(t *testing.T) {
	text := []byte("[daemon]\ndrain = \"120s\"\ninclude = \"more.toml\"\n[class.a]\nrate = \"400 kB/s\"\nheadroom = \"0%\"\nqueue = \"2048KiB\"\n[listener.web]\nlisten = \":80\"\nupstream = [\"a.example:80\", \"b.example:80\"]\nclass = \"a\"\n[[rule]]\nsource = \"10.0.0.1\"\nclass = \"a\"\n")
	files := []File{{"shaper.toml", string(text)}, {"more.toml", "[class.b]\nparent = \"a\"\nrate = \"50kB/s\"\nceil = \"0.4mbit\"\n[[rule]]\nclass = \"b\"\n"}}
	p, _, err := LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	p.Hash = "0123456789ab"
	var b strings.Builder
	if err := p.WriteWritten(&b, Written(files)); err != nil {
		t.Fatal(err)
	}
	want := `shaper.toml  0123456789ab
├─ daemon
│     drain    120s
│     include  more.toml
├─ class a
│  │  rate      400 kB/s
│  │  headroom  0%
│  │  queue     2048KiB
│  └─ class b
│        parent  a
│        rate    50kB/s
│        ceil    0.4mbit
├─ listener web
│     listen    :80
│     upstream  a.example:80, b.example:80
│     class     a
└─ rules, the first match wins
      1  shaper.toml:12  source 10.0.0.1/32, class a
      2  more.toml:5     class b
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("it differs (-want +got):\n%s", diff)
	}
}
