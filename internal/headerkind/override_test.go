package headerkind_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe/internal/headerkind"
)

func TestOverrideMethodsAreReadFromLists(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"POST":         {"POST"},
		" post\t":      {"POST"},
		"POST , GET":   {"POST , GET", "POST", "GET"},
		"get;POST":     {"GET;POST", "GET", "POST"},
		`"Patch"`:      {`"PATCH"`, "PATCH"},
		"PUT\x00":      {"PUT\x00", "PUT"},
		"M-SEARCH":     {"M-SEARCH"},
		"a_z0-9":       {"A_Z0-9"},
		"GET/PUT:A@Z[": {"GET/PUT:A@Z[", "GET", "PUT", "A", "Z"}, // the neighbours of digits and letters
		"":             {""},
		"ſ, ı, delete": {"S, I, DELETE", "S", "I", "DELETE"},
	} {
		for _, name := range headerkind.Overrides() {
			if got := headerkind.OverrideMethods(http.Header{name: {line}}); !slices.Equal(got, want) {
				t.Errorf("%s: %q: got %q, want %q", name, line, got, want)
			}
		}
	}
	both := http.Header{"X-Http-Method": {"GET", "PUT"}, "X-Method-Override": {"DELETE"}, "X-Method": {"POST"}}
	if got := headerkind.OverrideMethods(both); !slices.Equal(got, []string{"GET", "PUT", "DELETE"}) {
		t.Errorf("got %q", got)
	}
}
