package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// licenceFile matches what modules call the files that a copy of them must come with.
var licenceFile = regexp.MustCompile(`(?i)(licen[cs]e|copying|notice|patents)`)

// thirdParty returns the licences of all that is linked into a program, one after the
// other. A module without one is an error: it must not be shipped.
func thirdParty(ctx context.Context, info *debug.BuildInfo) ([]byte, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	args := []string{"list", "-mod=readonly", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	dirs := map[string]string{}
	for _, m := range info.Deps {
		args = append(args, m.Path)
	}
	if len(info.Deps) > 0 {
		out, err := exec.CommandContext(ctx, "go", args...).Output()
		if err != nil {
			return nil, fmt.Errorf("go list -m: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
			dirs[path] = dir
		}
	}
	var all bytes.Buffer
	if err := appendLicences(&all, "The Go standard library, "+info.GoVersion, strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if err := appendLicences(&all, m.Path+" "+m.Version, dirs[m.Path]); err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}

// appendLicences appends the licence files at the top of dir.
func appendLicences(to *bytes.Buffer, of, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("find the licence of %s: %w", of, err)
	}
	found := false
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !licenceFile.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(to, "%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), of, entry.Name(), bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
	}
	if !found {
		return fmt.Errorf("%s has no licence in %s", of, dir)
	}
	return nil
}
