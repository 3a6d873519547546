package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// The page is plain HTML, CSS and ES modules, as they stand. uPlot is version 1.6.32 from npm, as it
// is in dist; asset_test.go has its hashes.
//
//go:embed static
var static embed.FS

// kinds are the types of files by their extensions.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".LICENSE": "text/plain",
}

// asset is a file of the page, as it is sent.
type asset struct {
	kind           string // Content-Type
	tag            string // ETag
	plain, gzipped []byte
}

// assets returns the files by their names. The first request compresses them.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	dir, _ := fs.Sub(static, "static")
	names, _ := fs.Glob(dir, "*")
	for _, name := range names {
		text, _ := fs.ReadFile(dir, name) // embedded, so it is there
		sum := sha256.Sum256(text)
		all[name] = asset{kinds[path.Ext(name)], fmt.Sprintf("%q", fmt.Sprintf("%x", sum[:8])), text, compressed(text)}
	}
	return all
})

func compressed(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

// serveAsset serves a file of the page, gzipped if the browser takes that. The browser keeps the
// file, and asks each time whether it is still the same.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	a, ok := assets()[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
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
	w.Write(a.plain)
}
