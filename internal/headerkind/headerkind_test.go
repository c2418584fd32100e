package headerkind_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

var (
	hop         = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade"}
	perExchange = []string{"Set-Cookie", "Authorization", "WWW-Authenticate", "Authentication-Info", "Date", "Age", "Content-Length", "Idempotent-Replayed", "Idempotency-Expires"}
	lasting     = []string{"Content-Type", "Location", "ETag", "Vary", "Retry-After", "Cache-Control", "Idempotency-Key", "X-Request-Id", "Host", "Expect", ""}
)

func TestHeadersOfAConnectionAndOfAnExchange(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Concat(hop, perExchange, lasting) {
		canonical := http.CanonicalHeaderKey(name)
		if got, want := headerkind.IsHop(canonical), slices.Contains(hop, name); got != want {
			t.Errorf("IsHop(%q) = %v", canonical, got)
		}
		if got, want := headerkind.IsPerExchange(canonical), !slices.Contains(lasting, name); got != want {
			t.Errorf("IsPerExchange(%q) = %v", canonical, got)
		}
	}
}

// The page of the semantics has the list for users.
func TestDocsNameTheHeadersThatAreNeverStored(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile("(?s)\nNever stored[^:]*:(.*?)\\. ").FindStringSubmatch(pages.Read(t, "docs/semantics.md"))
	if list == nil {
		t.Fatal("docs/semantics.md does not say which headers are never stored")
	}
	var named []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list[1], -1) {
		named = append(named, m[1])
		if !strings.HasSuffix(m[1], "*") && !headerkind.IsPerExchange(http.CanonicalHeaderKey(m[1])) {
			t.Errorf("docs/semantics.md says that %s is never stored", m[1])
		}
	}
	for _, name := range slices.Concat(hop, perExchange) {
		if !slices.ContainsFunc(named, func(n string) bool {
			prefix, all := strings.CutSuffix(n, "*")
			return n == name || all && strings.HasPrefix(name, prefix)
		}) {
			t.Errorf("docs/semantics.md does not say that %s is never stored", name)
		}
	}
}
