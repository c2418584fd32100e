package config_test

import (
	"strings"
	"testing"
)

// A change that takes the guard off requests is named, with the route and its line.
func TestWhatIsNoLongerGuarded(t *testing.T) {
	t.Parallel()
	const head = "upstream: http://127.0.0.1:9000\ntenant: { from: bearer }\n"
	for name, c := range map[string]struct {
		before, after string
		want          []string // each in one line, in this order
	}{
		"nothing changed":            {"", "", nil},
		"a route is off":             {"", "routes: [{ match: POST /orders, off: true }]\n", []string{`"POST /orders" is off now and was guarded before`}},
		"a path is off":              {"", "routes: [{ match: /orders, off: true }]\n", []string{`"/orders" is off now and was guarded before`}},
		"a guarded route is off":     {"routes: [{ match: PUT /orders }]\n", "routes: [{ match: PUT /orders, off: true }]\n", []string{`"PUT /orders" is off now`}},
		"a route is observed":        {"routes: [{ match: /orders }]\n", "routes: [{ match: /orders, observe: true }]\n", []string{`"/orders" is only observed now`}},
		"it was off before":          {"routes: [{ match: POST /orders, off: true }]\n", "routes: [{ match: POST /orders, observe: true }]\n", nil},
		"it was never guarded":       {"", "routes: [{ match: DELETE /orders, off: true }]\n", nil},
		"it is guarded now":          {"routes: [{ match: POST /orders, off: true }]\n", "routes: [{ match: POST /orders }]\n", nil},
		"the defaults are observed":  {"", "defaults: { observe: true }\n", []string{"what no route matches is only observed now"}},
		"the defaults and a route":   {"routes: [{ match: POST /a }]\n", "defaults: { off: true }\nroutes: [{ match: POST /a }, { match: POST /b, off: true }]\n", []string{"what no route matches is off now", `"POST /a" is off now`}},
		"a guarded route is gone":    {"defaults: { off: true }\nroutes: [{ match: POST /a, off: false }]\n", "defaults: { off: true }\n", []string{`"POST /a" was guarded before and is not among the routes any more`}},
		"a route that was off, gone": {"defaults: { off: true }\nroutes: [{ match: POST /a }]\n", "defaults: { off: true }\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := parse(t, head+c.before), parse(t, head+c.after)
			got := after.NoLongerGuards(before)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %d lines", got, len(c.want))
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) || !strings.Contains(got[i], "run again") {
					t.Errorf("line %d is %q, want %q", i, got[i], want)
				}
			}
		})
	}
}
