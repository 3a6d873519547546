package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// ask returns what the dashboard answers to a GET of a path, with fields of the head as pairs.
func ask(d *Dashboard, path string, fields ...string) *http.Response {
	r := httptest.NewRequest("GET", "http://127.0.0.1:9780"+path, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result()
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// uPlot is what npm has as uplot@1.6.32, in dist.
func TestUPlotIsTheOneFromNPM(t *testing.T) {
	for name, sum := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	} {
		if got := fmt.Sprintf("%x", sha256.Sum256(assets()[name].plain)); got != sum {
			t.Errorf("%s has the hash %s, not %s", name, got, sum)
		}
	}
}

// The limit is that of the dashboard. The playground uses its files, and more.
func TestPageIsSmall(t *testing.T) {
	files, sum, more := 0, 0, 0
	for name, a := range assets() {
		if strings.HasPrefix(name, "play") {
			more += len(a.gzipped)
			continue
		}
		files++
		sum += len(a.gzipped)
	}
	t.Logf("%d files have %d bytes gzipped; the playground has %d more, without its program", files, sum, more)
	if files < 10 || sum > 60<<10 || more > 15<<10 {
		t.Errorf("%d files have %d bytes gzipped, more than 60 KiB; or the playground has %d, more than 15 KiB", files, sum, more)
	}
}

// A program that go build has made has the page of the playground, and says what is missing.
func TestPlaygroundWithoutItsProgram(t *testing.T) {
	d := New(&fake{})
	if got := ask(d, "/play"); got.StatusCode != http.StatusOK || !strings.Contains(read(t, got.Body), "<title>Playground") {
		t.Errorf("/play: %s", got.Status)
	}
	missing := ask(d, "/play.wasm")
	if text := read(t, missing.Body); missing.StatusCode != http.StatusNotFound || !strings.Contains(text, "make build") || missing.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("/play.wasm: %s, %q", missing.Status, text)
	}
}

// What is embedded gzipped has its name without .gz, for browsers that take it and for those that do not.
// Those cost no memory for the whole.
func TestGzippedAsset(t *testing.T) {
	text := bytes.Repeat([]byte("a program "), 1<<20)
	name, a := newAsset("play.wasm.gz", compressed(text))
	if name != "play.wasm" || a.kind != "application/wasm" || a.plain != nil {
		t.Errorf("%s: %s", name, a.kind)
	}
	var before, after runtime.MemStats
	sum := sha256.New()
	runtime.ReadMemStats(&before)
	a.write(sum)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > uint64(len(text))/8 {
		t.Errorf("%d bytes take %d of memory", len(text), taken)
	}
	if want := sha256.Sum256(text); !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Error("the browser gets something else")
	}
}

func TestAssets(t *testing.T) {
	d := New(&fake{})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/main.js": "text/javascript", "/style.css": "text/css", "/icon.svg": "image/svg+xml", "/uPlot.LICENSE": "text/plain",
	} {
		plain, zipped := ask(d, path), ask(d, path, "Accept-Encoding", "br, gzip")
		unzipped, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if a, b := read(t, plain.Body), read(t, unzipped); a != b || a == "" {
			t.Errorf("%s: gzipped it has %d bytes, plain %d", path, len(b), len(a))
		}
		if got := plain.Header.Get("Content-Type"); got != kind {
			t.Errorf("%s has the type %q", path, got)
		}
		again := ask(d, path, "If-None-Match", plain.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified || read(t, again.Body) != "" {
			t.Errorf("%s: the browser has it, and gets %s", path, again.Status)
		}
	}
	for _, path := range []string{"/none", "/static/main.js", "/main.js/", "/.."} {
		if got := ask(d, path); got.StatusCode != http.StatusNotFound && got.StatusCode/100 != 3 {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
}

// The page loads nothing from elsewhere, and has no script or style that its policy forbids.
func TestPageIsItsOwn(t *testing.T) {
	foreign := regexp.MustCompile(`(https?:)?//[a-z]|\bstyle=|\bon[a-z]+=|<script>|<style|\beval\(|innerHTML`)
	for name, a := range assets() {
		if strings.HasPrefix(name, "uPlot") {
			continue
		}
		text := strings.ReplaceAll(string(a.plain), "http://www.w3.org/2000/svg", "")
		if found := foreign.FindString(regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAllString(text, "")); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
}
