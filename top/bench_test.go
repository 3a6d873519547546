package top

import (
	"encoding/json"
	"fmt"
	"testing"

	"shaper/daemon"
	"shaper/web"
)

// BenchmarkEvent is what top does each second with 100 classes: it reads an event, and draws what has
// changed.
func BenchmarkEvent(b *testing.B) {
	var all []web.Class
	for i := range 20 {
		for _, c := range classes() {
			c.Name = fmt.Sprintf("%.20s-%d", c.Name, i)
			all = append(all, c)
		}
	}
	m := shown(80, 24, all...)
	s := screen{looks: colours, width: 80}
	event := daemon.Event[daemon.Tree]{Now: noon, Summary: summary, View: daemon.Tree{Total: len(all), Classes: all}}
	b.ReportAllocs()
	for i := range b.N {
		event.View.Classes[0].Now = fmt.Sprint(i%10, " messages/s")
		text, err := json.Marshal(event)
		if err != nil {
			b.Fatal(err)
		}
		var next daemon.Event[daemon.Tree]
		if err := json.Unmarshal(text, &next); err != nil {
			b.Fatal(err)
		}
		m.showTree(next)
		s.draw(m.view())
	}
}
