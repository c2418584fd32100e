package main_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

const version = "v0.9.9"

// made is when the commit of every clone was made.
var made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A clone is a copy of this tree with one commit that is tagged, in a directory of its own.
type clone struct {
	t   *testing.T
	dir string
	env []string
}

func newClone(t *testing.T, name string) *clone {
	t.Helper()
	c := &clone{t: t, dir: filepath.Join(t.TempDir(), name)}
	date := made.Format(time.RFC3339)
	c.env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE="+date,
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE="+date)
	root := pages.Root(t)
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another test's, and gone
		}
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case rest == ".git" || rest == "out":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(c.dir, rest), 0o750)
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, os.WriteFile(filepath.Join(c.dir, rest), text, info.Mode().Perm()))
	}))
	changes := filepath.Join(c.dir, "CHANGELOG.md")
	text, err := os.ReadFile(changes)
	must(t, err)
	must(t, os.WriteFile(changes, append(text, "\n## "+version[1:]+" (2026-01-02)\n"...), 0o600))
	c.git("init", "-q")
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "a release")
	c.git("tag", version)
	return c
}

// again returns a clone of the clone, in another directory.
func (c *clone) again(name string) *clone {
	c.t.Helper()
	other := &clone{t: c.t, dir: filepath.Join(c.t.TempDir(), name), env: slices.Clone(c.env)}
	c.git("clone", "-q", ".", other.dir)
	return other
}

func (c *clone) git(args ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// release runs scripts/release.
func (c *clone) release(args ...string) (string, error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "scripts/release", args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// released returns the files of a release by their names.
func (c *clone) released() map[string]string {
	c.t.Helper()
	files := map[string]string{}
	dir := filepath.Join(c.dir, "out", "release")
	entries, err := os.ReadDir(dir)
	must(c.t, err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		must(c.t, err)
		files[entry.Name()] = string(text)
	}
	return files
}

// Two releases of one commit are the same bytes, wherever they are made.
func TestW86_ReleaseIsReproducible(t *testing.T) {
	t.Parallel()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	here := newClone(t, "here")
	there := here.again("some where else")
	here.env = append(here.env, "TZ=UTC")
	there.env = append(there.env, "TZ=Asia/Tokyo", "TMPDIR="+t.TempDir(), "GOFLAGS=-tags=unused")
	for _, c := range []*clone{here, there} {
		if out, err := c.release(version, platform); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	one, two := here.released(), there.released()
	name := fmt.Sprintf("retrysafe_%s_%s_%s", version, runtime.GOOS, runtime.GOARCH)
	want := []string{"SHA256SUMS", name + ".cdx.json", name + ".tar.gz"}
	for _, file := range want {
		if one[file] == "" || one[file] != two[file] {
			t.Errorf("%s: two builds have %d and %d bytes, and they differ", file, len(one[file]), len(two[file]))
		}
	}
	if len(one) != len(want) || len(two) != len(want) {
		t.Errorf("a release has %d and %d files, want %q", len(one), len(two), want)
	}
	sums := ""
	for _, file := range want[1:] {
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(one[file])), file)
	}
	if one["SHA256SUMS"] != sums {
		t.Errorf("SHA256SUMS is\n%swant\n%s", one["SHA256SUMS"], sums)
	}

	files := unpack(t, one[name+".tar.gz"], name)
	if got, want := files["sbom.cdx.json"], one[name+".cdx.json"]; got != want {
		t.Error("the SBOM in the archive is not the one beside it")
	}
	holdProgram(t, files["retrysafe"], here.dir, there.dir)
	holdParts(t, files)
}

// unpack returns the files of an archive by their names, below the folder that they are in.
func unpack(t *testing.T, archive, folder string) map[string]string {
	t.Helper()
	text, err := gzip.NewReader(strings.NewReader(archive))
	must(t, err)
	files := map[string]string{}
	var order []string
	for r := tar.NewReader(text); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		name, ok := strings.CutPrefix(header.Name, folder+"/")
		mode := int64(0o644)
		if name == "retrysafe" {
			mode = 0o755
		}
		if !ok || !header.ModTime.Equal(made) || header.Uid != 0 || header.Gid != 0 || header.Mode != mode {
			t.Errorf("%s is of %v, of user %d and group %d, with mode %o", header.Name, header.ModTime, header.Uid, header.Gid, header.Mode)
		}
		content, err := io.ReadAll(r)
		must(t, err)
		files[name] = string(content)
		order = append(order, name)
	}
	want := []string{"CHANGELOG.md", "LICENSE", "README.md", "THIRD-PARTY-LICENSES.txt", "retrysafe", "sbom.cdx.json"}
	if !slices.Equal(order, want) {
		t.Errorf("the archive has %q, want %q", order, want)
	}
	return files
}

// holdProgram runs the released program: it says which release it is, and nothing of the
// directories that it was built in.
func holdProgram(t *testing.T, program string, dirs ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "retrysafe")
	must(t, os.WriteFile(path, []byte(program), 0o700))
	out, err := exec.CommandContext(t.Context(), path, "version").CombinedOutput()
	if says := string(out); err != nil || !strings.HasPrefix(says, "retrysafe "+version+" (") || strings.Contains(says, "modified") {
		t.Errorf("the released program says %q, %v", out, err)
	}
	for _, dir := range dirs {
		if strings.Contains(program, dir) {
			t.Errorf("the program names the directory that it was built in")
		}
	}
}

// holdParts compares the list of what is linked, and its licences, with the program.
func holdParts(t *testing.T, files map[string]string) {
	t.Helper()
	info, err := buildinfo.Read(strings.NewReader(files["retrysafe"]))
	must(t, err)
	var list struct {
		BOMFormat, SpecVersion, SerialNumber string
		Components                           []struct {
			Name, Version, PURL string
			Properties          []struct{ Name, Value string }
		}
	}
	must(t, json.Unmarshal([]byte(files["sbom.cdx.json"]), &list))
	if list.BOMFormat != "CycloneDX" || list.SpecVersion != "1.6" || len(list.SerialNumber) != len("urn:uuid:")+36 {
		t.Errorf("the SBOM is %s %s %s", list.BOMFormat, list.SpecVersion, list.SerialNumber)
	}
	var got []string
	for _, c := range list.Components {
		line := c.Name + " " + c.Version
		for _, p := range c.Properties {
			line += " " + p.Value
		}
		got = append(got, line)
		if !strings.HasPrefix(c.PURL, "pkg:golang/") {
			t.Errorf("%s has the package URL %q", c.Name, c.PURL)
		}
	}
	want := []string{"std " + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, m.Path+" "+m.Version+" "+m.Sum)
		if !strings.Contains(files["THIRD-PARTY-LICENSES.txt"], "\n"+m.Path+" "+m.Version+": ") {
			t.Errorf("the licence of %s is missing", m.Path)
		}
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("the SBOM lists\n%s\nand the program links\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(files["THIRD-PARTY-LICENSES.txt"], "The Go standard library, "+info.GoVersion) {
		t.Error("the licence of Go is missing")
	}
}

// What is not a commit with a tag and a section in the changelog is not released.
func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	clone := newClone(t, "clone")
	file := func(name string) string { return filepath.Join(clone.dir, name) }
	for _, c := range []struct {
		name, version string
		before, after func()
		says          string
	}{
		{"no version", "", nil, nil, "usage"},
		{"not a version", "0.9.9", nil, nil, "usage"},
		{"no tag", "v0.9.8", nil, nil, "the tag v0.9.8 is not at this commit"},
		{"no changelog", "v0.9.7", func() { clone.git("tag", "v0.9.7") }, nil, `CHANGELOG.md has no section "## 0.9.7"`},
		{
			"a changed file", version,
			func() { must(t, os.WriteFile(file("go.sum"), nil, 0o600)) }, func() { clone.git("checkout", "-q", "go.sum") },
			"changes that no commit has",
		},
		{
			"an unknown file", version,
			func() { must(t, os.WriteFile(file("new.go"), nil, 0o600)) }, func() { must(t, os.Remove(file("new.go"))) },
			"changes that no commit has",
		},
		{
			"another commit", version,
			func() { clone.git("commit", "-q", "--allow-empty", "-m", "later") }, nil,
			"the tag " + version + " is not at this commit",
		},
	} {
		if c.before != nil {
			c.before()
		}
		out, err := clone.release(c.version)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, %q; want a refusal that says %q", c.name, err, out, c.says)
		}
		if _, err := os.Stat(file("out")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was built: %v", c.name, err)
		}
		if c.after != nil {
			c.after()
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
