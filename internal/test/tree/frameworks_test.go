package tree_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// Each program on the page is the file that the page links just before it. The tests of
// the file's module compile and run it.
func TestDocsFrameworkProgramsAreFiles(t *testing.T) {
	t.Parallel()
	const page = "docs/frameworks.md"
	text := pages.Read(t, page)
	linked := regexp.MustCompile("(?ms)^\\[(frameworks/[\\w/]+/main\\.go)\\]\\(\\.\\./([\\w/.]+)\\):\\n\\n```go\n(.*?)^```$")
	programs := linked.FindAllStringSubmatch(text, -1)
	if blocks := pages.Blocks(text, "go"); len(programs) != len(blocks) || len(programs) < 6 {
		t.Fatalf("%s has %d programs with a link to their file, of %d", page, len(programs), len(blocks))
	}
	for _, p := range programs {
		source, err := os.ReadFile(filepath.FromSlash(p[2]))
		must(t, err)
		if p[1] != p[2] || p[3] != string(source) {
			t.Errorf("%s: the program is not what %s has; copy the file into the page", page, p[2])
		}
		if tests, err := filepath.Glob(filepath.FromSlash(path.Dir(p[2]) + "/*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s has no test", p[2])
		}
	}
}

// An adapter is small enough to be read before it is used. Blank lines and comments do not
// count. Fiber's has to turn requests and responses of fasthttp into those of net/http and
// back.
func TestArchAdaptersAreSmall(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile(`(?m)^\s*[^\s/].*$|^\s*/[^/].*$`)
	for dir, most := range map[string]int{"frameworks/ginkey": 99, "frameworks/echokey": 99, "frameworks/fiberkey": 209} {
		files, err := filepath.Glob(filepath.FromSlash(dir + "/*.go"))
		must(t, err)
		lines := 0
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				lines += len(code.FindAllString(pages.Read(t, file), -1))
			}
		}
		if lines == 0 || lines > most {
			t.Errorf("%s has %d lines of code, want at most %d", dir, lines, most)
		}
	}
}
