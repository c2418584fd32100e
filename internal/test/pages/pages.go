// Package pages lets tests compare the documents of the tree with the code.
package pages

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Update is the flag with which [Hold] writes what a page should say.
var Update = flag.Bool("docs.update", false, "write what the pages should say into them")

// Root returns the directory of the module that the test runs in.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			t.Fatalf("no go.mod above %s", dir)
		}
	}
}

// Path returns the path of a file that is named by its path from the root.
func Path(t testing.TB, file string) string {
	t.Helper()
	return filepath.Join(Root(t), filepath.FromSlash(file))
}

// Read returns the text of a file that is named by its path from the root.
func Read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(Path(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Fence matches a block of code in a page.
var Fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// Blocks returns the blocks of code in one language.
func Blocks(text, language string) []string {
	var found []string
	for _, m := range Fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// Hold fails the test unless the part of a page that the pattern matches is want. With
// -docs.update it writes want there.
func Hold(t testing.TB, file, pattern, want string) {
	t.Helper()
	text := Read(t, file)
	part := regexp.MustCompile(pattern).FindString(text)
	switch {
	case part == want:
	case *Update && part != "":
		if err := os.WriteFile(Path(t, file), []byte(strings.Replace(text, part, want, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s says\n%s\nbut it is\n%s\nrun this test with -docs.update to write it", file, part, want)
	}
}
