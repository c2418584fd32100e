package main

import (
	"archive/zip"
	"bytes"
	"io"
	"slices"
	"testing"
	"time"
)

// The archive for Windows is packed like the others, which the test of a whole release
// looks into.
func TestZipIsReproducible(t *testing.T) {
	t.Parallel()
	r := release{version: "v1.0.0", platform: "windows/amd64", made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	a, b := file{name: "a", text: []byte("1")}, file{name: "b.exe", text: []byte("2"), program: true}
	one, err := r.pack([]file{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if two, err := r.pack([]file{b, a}); err != nil || !bytes.Equal(one, two) {
		t.Errorf("the order in which files are given counts: %v", err)
	}
	archive, err := zip.NewReader(bytes.NewReader(one), int64(len(one)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil || !f.Modified.Equal(r.made) || len(text) != 1 {
			t.Errorf("%s is %q of %v: %v", f.Name, text, f.Modified, err)
		}
	}
	if want := []string{"retrysafe_v1.0.0_windows_amd64/a", "retrysafe_v1.0.0_windows_amd64/b.exe"}; !slices.Equal(names, want) || r.archive() != "retrysafe_v1.0.0_windows_amd64.zip" {
		t.Errorf("%s has %q, want %q", r.archive(), names, want)
	}
}

func TestPackageURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, version, want string }{
		{"github.com/Some/Thing", "v1.2.3", "pkg:golang/github.com/some/thing@v1.2.3"},
		{"example.com/old", "v3.0.0+incompatible", "pkg:golang/example.com/old@v3.0.0%2Bincompatible"},
	} {
		if got := purl(c.path, c.version); got != c.want {
			t.Errorf("purl(%q, %q) is %q, want %q", c.path, c.version, got, c.want)
		}
	}
}
