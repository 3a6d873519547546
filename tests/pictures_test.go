package tests

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// picturesEnv names the directory for the pictures of the pages, and picturesAfterEnv says how much
// traffic they show: `make pictures` sets both.
const (
	picturesEnv      = "SHAPER_TEST_PICTURES"
	picturesAfterEnv = "SHAPER_TEST_PICTURES_AFTER"
)

// picturesPolicy is an account of a provider that four programs share, and a backup beside it.
const picturesPolicy = `
[class.aggregator]
rate = "20 messages/s"
[class.alerts]
parent = "aggregator"
rate = "4 messages/s"
ceil = "12 messages/s"
[class.bulk]
parent = "aggregator"
rate = "4 messages/s"
ceil = "10 messages/s"
[class.otp]
parent = "aggregator"
rate = "8 messages/s"
ceil = "20 messages/s"
[class.promotions]
parent = "aggregator"
rate = "2 messages/s"
ceil = "6 messages/s"
[class.backup]
rate = "8mbit"
`

// picturedLoads are what the programs send: so many lines at once, with a pause between.
var picturedLoads = map[string]struct {
	lines int
	pause time.Duration
}{"alerts": {3, 2 * time.Second}, "bulk": {900, 3 * time.Minute}, "otp": {7, time.Second}, "promotions": {200, 90 * time.Second}, "backup": {0, 0}}

// The pictures of the pages that the docs show. They need traffic of an hour, so they are made only when somebody asks.
func TestPictures(t *testing.T) {
	dir, after := os.Getenv(picturesEnv), os.Getenv(picturesAfterEnv)
	if dir == "" {
		t.Skip("draws the pictures of the docs, with traffic of an hour: make pictures")
	}
	wait, err := time.ParseDuration(after)
	if err != nil {
		t.Fatal(err)
	}
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	text := picturesPolicy
	for name := range picturedLoads {
		text += fmt.Sprintf("[listener.%[1]s]\nlisten = \"127.0.0.1:0\"\nupstream = %[2]q\nclass = %[1]q\n", name, upstream)
		if name != "backup" {
			text += "protocol = \"lines\"\n"
		}
	}
	bin := filepath.Join(binDir, "pictured")
	makeIn(t, "build", "BIN="+bin)
	p := start(t, bin, text)
	for name := range picturedLoads {
		go talk(dial(t, "", p.addr(name)), name)
	}
	time.Sleep(wait) // the traffic is what the pictures show
	b := newBrowser(t)
	b.size(1100, 600)
	page := "http://" + p.status().HTTP + "/"
	b.open(page)
	b.await("bulk waits", `document.querySelector("main tbody")?.innerText.includes("waits for")`)
	b.draw(filepath.Join(dir, "dashboard-light.png"))
	b.prefer("dark")
	b.open(page + "#class/bulk")
	b.await("the curves are drawn", `document.querySelectorAll("canvas").length === 3 && document.querySelector(".why") !== null`)
	b.draw(filepath.Join(dir, "dashboard-dark.png"))
	b.prefer("light")
	b.size(1100, 1280)
	b.open(page + "play")
	b.await("six classes are drawn", `document.querySelectorAll("#charts figure").length === 6`)
	b.draw(filepath.Join(dir, "playground.png"))
}

// talk sends what the program of a class sends, until the connection ends.
func talk(c net.Conn, name string) {
	l := picturedLoads[name]
	text := strings.Repeat(fmt.Sprintf("%-35s\n", "a message of "+name), l.lines)
	if l.lines == 0 {
		text = strings.Repeat("backup", 10_000)
	}
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		time.Sleep(l.pause)
	}
}

// draw writes a picture of the window.
func (b *browser) draw(path string) {
	b.t.Helper()
	b.eval(`new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))`)
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
