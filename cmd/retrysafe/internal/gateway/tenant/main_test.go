package tenant_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// Nothing that a request or a Run started may outlive the tests.
func TestMain(m *testing.M) { leftover.Main(m) }

const peer = "192.0.2.7:40000"

// request returns a POST from peer with these header lines.
func request(lines ...[2]string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.RemoteAddr = peer
	for _, l := range lines {
		r.Header.Add(l[0], l[1])
	}
	return r
}

// bearing returns a POST that shows a token.
func bearing(token string) *http.Request {
	return request([2]string{"Authorization", "Bearer " + token})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must1[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}
