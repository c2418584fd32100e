package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A route that is off, or needs no key, frees what its pattern matches and nothing else:
// not its base path, not a path that some servers read as a guarded one, and not a GET
// that asks to be taken for a POST.
func TestUnguardedRoutesFreeNothingElse(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"),
		`  - { match: "POST /off/{rest...}", off: true }`, `  - { match: "POST /orders/", required: false }`))
	for _, c := range []struct {
		method, target, field string
		passes                bool
	}{
		{"POST", "/off/", "", true},
		{"POST", "/off/a;b=c", "", true},
		{"POST", "/off/a%2Fb", "", true},
		{"POST", "/orders/7", "", true},
		{"GET", "/payments", "", true},
		{"GET", "/payments//../x%2F..;/y", "", true}, // no route is about a GET
		{"POST", "/off", "", false},
		{"POST", "/orders", "", false},
		{"POST", "/off/../payments", "", false},
		{"POST", "/off/%2e%2e/payments", "", false},
		{"POST", "/off/..%2Fpayments", "", false},
		{"POST", "/off/..;/payments", "", false},
		{"POST", `/off/..\payments`, "", false},
		{"POST", "/off/..%5Cpayments", "", false},
		{"POST", "/off/%252e%252e/payments", "", false},
		{"POST", "/off/..%252Fpayments", "", false},
		{"POST", "//off/payments", "", false},
		{"POST", "/off//../payments", "", false},
		{"POST", "/orders/..;/payments", "", false},
		{"POST", "/off/%00", "", false},
		{"POST", "*", "", false},
		{"GET", "/payments", "X-HTTP-Method-Override: POST , GET\r\n", false},
		{"GET", "/off/..;/payments", "X-HTTP-Method: post\r\n", false},
	} {
		before := s.total()
		status := raw(t, g.addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer me\r\n%sContent-Length: 2\r\n\r\n{}", c.method, c.target, c.field), false)
		if passed := s.total() > before; passed != c.passes || !passed && status != 400 {
			t.Errorf("%s %s %q without a key: got %d, reached the service: %v", c.method, c.target, c.field, status, passed)
		}
	}
}
