package headerkind_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/headerkind"
)

func TestCheckReplayed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"Content-Type", "application/json", true},
		{"X-A", "", true},
		{"X-A", "a\tb", true},
		{"X-A", "é", true},
		{"", "a", false},
		{"A B", "a", false},
		{"A:", "a", false},
		{"!A~", "a b!", true},
		{"A\x7f", "a", false},
		{"A\x1f", "a", false},
		{"X-A", "a\x1fb", false},
		{"Ä", "a", false},
		{"X-A", "b\r\nX-C: d", false},
		{"X-A", "\x7f", false},
		{"Set-Cookie", "a=b", false},
		{"Www-Authenticate", "Basic", false},
		{"Te", "trailers", false},
		{"Content-Length", "1", false},
	} {
		if err := headerkind.CheckReplayed(c.name, c.value); (err == nil) != c.ok {
			t.Errorf("%q: %q: %v", c.name, c.value, err)
		}
	}
}
