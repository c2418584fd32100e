package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
)

// A bom is a bill of materials in the JSON form of CycloneDX 1.6, as far as we fill it.
type bom struct {
	Format       string        `json:"bomFormat"`
	Spec         string        `json:"specVersion"`
	Serial       string        `json:"serialNumber"`
	Version      int           `json:"version"`
	Metadata     metadata      `json:"metadata"`
	Components   []component   `json:"components"`
	Compositions []composition `json:"compositions"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A composition says how complete the list is.
type composition struct {
	Aggregate  string   `json:"aggregate"`
	Assemblies []string `json:"assemblies"`
}

// sbom returns the list of what is linked into a program: the modules that the go
// command has noted in it, and the standard library. The program's own hash is its serial
// number, so that two lists of one program are the same bytes.
func sbom(r *release, info *debug.BuildInfo, program []byte) ([]byte, error) {
	sum := sha256.Sum256(program)
	serial := sum
	serial[6], serial[8] = serial[6]&0x0f|0x80, serial[8]&0x3f|0x80 // a UUID of version 8
	main := component{
		Type: "application", Name: command, Version: r.version, PURL: purl(info.Main.Path, r.version) + "#cmd/" + command,
		Hashes:   []hash{{"SHA-256", fmt.Sprintf("%x", sum)}},
		Licenses: make([]license, 1),
	}
	main.Licenses[0].License.ID = "Apache-2.0"
	for _, s := range info.Settings {
		main.Properties = append(main.Properties, property{"go:build:" + s.Key, s.Value})
	}
	main.Ref = main.PURL

	std := component{Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	std.PURL = purl("std", std.Version)
	std.Ref = std.PURL
	linked := []component{std}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: a release links published modules only", m.Path, m.Replace.Path)
		}
		c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version)}
		c.Ref, c.Properties = c.PURL, []property{{"go:sum", m.Sum}}
		linked = append(linked, c)
	}

	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetIndent("", "  ")
	to.SetEscapeHTML(false)
	err := to.Encode(bom{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial:       fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", serial[:4], serial[4:6], serial[6:8], serial[8:10], serial[10:16]),
		Metadata:     metadata{r.made.Format(time.RFC3339), main},
		Components:   linked,
		Compositions: []composition{{"complete", []string{main.Ref}}},
	})
	return text.Bytes(), err
}

// purl is the package URL of a Go module, whose path it wants in lower case.
func purl(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}
