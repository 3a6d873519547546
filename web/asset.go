package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// The pages are plain HTML, CSS and ES modules, as they stand. uPlot is version 1.6.32 from npm, as it
// is in dist; asset_test.go has its hashes. `make build` lays the program of the playground,
// play.wasm.gz, and Go's wasm_exec.js over static. Neither is ever a file there, so neither can be
// older than the sources.
//
//go:embed static
var static embed.FS

// noProgram is what the playground says without its program.
const noProgram = "this shaper was built without the playground's program: make build makes bin/shaper with it, and make install installs that"

// programPolicy is what a browser may load for the worker of the playground: besides scripts, it may
// compile WebAssembly. The pages themselves may not.
const programPolicy = policy + "; script-src 'self' 'wasm-unsafe-eval'"

// kinds are the types of files by their extensions.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".LICENSE": "text/plain", ".wasm": "application/wasm",
}

// asset is a file of the page, as it is sent.
type asset struct {
	kind    string // Content-Type
	tag     string // ETag
	plain   []byte // nil: it is large, and only gzipped is kept
	gzipped []byte
}

// assets returns the files by their names. The first request compresses them.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	dir, _ := fs.Sub(static, "static")
	names, _ := fs.Glob(dir, "*")
	for _, name := range names {
		text, _ := fs.ReadFile(dir, name) // embedded, so it is there
		name, a := newAsset(name, text)
		all[name] = a
	}
	return all
})

// newAsset returns an embedded file as it is sent, and its name there. A file that is gzipped already
// loses the extension .gz.
func newAsset(file string, text []byte) (name string, a asset) {
	sum := sha256.Sum256(text)
	name, gzipped := strings.CutSuffix(file, ".gz")
	a = asset{kind: kinds[path.Ext(name)], tag: fmt.Sprintf("%q", fmt.Sprintf("%x", sum[:8])), plain: text}
	if gzipped {
		a.plain, a.gzipped = nil, text
	} else {
		a.gzipped = compressed(text)
	}
	return name, a
}

func compressed(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

// write sends the file as it is. One that is kept gzipped only is never whole in memory, since many may
// ask for it at once.
func (a asset) write(to io.Writer) {
	if a.plain != nil {
		to.Write(a.plain)
		return
	}
	if text, err := gzip.NewReader(bytes.NewReader(a.gzipped)); err == nil {
		io.Copy(to, text)
	}
}

// pages are the files of the pages by their paths.
var pages = map[string]string{"/": "index.html", "/play": "play.html"}

// serveAsset serves a file of the pages, gzipped if the browser takes that. The browser keeps the
// file, and asks each time whether it is still the same.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name, isPage := pages[r.URL.Path]
	if !isPage {
		name = strings.TrimPrefix(r.URL.Path, "/")
	}
	a, ok := assets()[name]
	if !ok && name == "play.wasm" {
		http.Error(w, noProgram, http.StatusNotFound)
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	if name == "play-worker.js" {
		h.Set("Content-Security-Policy", programPolicy)
	}
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), a.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		w.Write(a.gzipped)
		return
	}
	a.write(w)
}
