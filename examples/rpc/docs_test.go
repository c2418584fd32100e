package rpc_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The code on the page is that of the programs, which are run by tests, and short.
func TestDocsShowThePrograms(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/rpc.md")
	must(t, err)
	all := ""
	for _, file := range []string{"grpc/main.go", "connect/main.go"} {
		text, err := os.ReadFile(file)
		must(t, err)
		if n := strings.Count(string(text), "\n"); n > 80 {
			t.Errorf("%s has %d lines", file, n)
		}
		all += string(text)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Fatalf("docs/rpc.md has %d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(all, b[1]) {
			t.Errorf("docs/rpc.md shows what is in no program:\n%s", b[1])
		}
	}
}
