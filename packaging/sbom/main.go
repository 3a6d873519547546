// Command sbom prints the software bill of materials of a Go program: what it contains, in the JSON
// of CycloneDX 1.6. It reads what the Go tool has written into the program, so the list is that of
// this very file. It has no time and no random number, so the same program has the same list.
//
//	go run ./packaging/sbom -version 1.2.3 bin/shaper >shaper.cdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"strings"
)

type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"` // of this list
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// uPlot is part of the program as a file; see web/static.
var uPlot = newComponent("library", "uplot", "1.6.32", "pkg:npm/uplot@1.6.32")

func main() {
	version := flag.String("version", "", "the version of the program")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom [-version VERSION] PROGRAM")
		os.Exit(64)
	}
	if err := write(flag.Arg(0), *version); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write prints the list of a program.
func write(file, version string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false) // package URLs may contain &
	return out.Encode(newBOM(info, version, sha256.Sum256(content)))
}

// newBOM returns the list of a program with this hash: its modules, the standard library, and uPlot.
func newBOM(info *buildinfo.BuildInfo, version string, sum [sha256.Size]byte) bom {
	name := path.Base(info.Path)
	program := newComponent("application", name, version, "pkg:generic/"+name+"@"+version)
	program.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	parts := []component{newComponent("library", "stdlib", goVersion, "pkg:golang/stdlib@"+goVersion), uPlot}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, newModule(m.Path, m.Version, m.Sum))
	}
	uses := dependency{Ref: program.Ref}
	for _, p := range parts {
		uses.DependsOn = append(uses.DependsOn, p.Ref)
	}
	return bom{"CycloneDX", "1.6", 1, metadata{program}, parts, []dependency{uses}}
}

// newModule returns a module with the hash of go.sum, which is that of a list of the hashes of its
// files (golang.org/x/mod/sumdb/dirhash).
func newModule(path, version, sum string) component {
	c := newComponent("library", path, version, "pkg:golang/"+path+"@"+version)
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && sum != "" {
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
	}
	return c
}

// newComponent returns a component that the list refers to by its package URL. In one, "+" means a
// space and has to be escaped, as in v2.0.0+incompatible.
func newComponent(kind, name, version, url string) component {
	url = strings.ReplaceAll(url, "+", "%2B")
	return component{Type: kind, Ref: url, Name: name, Version: version, URL: url}
}
