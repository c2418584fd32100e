package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Without tracing its hooks allocate nothing and change nothing. It runs alone, because
// tests beside it would allocate too.
func TestTracingThatIsOffAllocatesNothing(t *testing.T) {
	var off tracing
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("Traceparent", "as it came")
	told := 0
	next := off.told(func(Exchange) { told++ })
	got := testing.AllocsPerRun(100, func() {
		if off.serves(w, r) || off.engine() != nil {
			t.Error("it traces")
		}
		off.inject(r)
		next(Exchange{Context: r.Context()})
	})
	if got != 0 || told == 0 || r.Header.Get("Traceparent") != "as it came" {
		t.Errorf("%v allocations, told %d times, headers %v", got, told, r.Header)
	}
	if off.told(nil) != nil {
		t.Error("there is an observer of exchanges, and nothing to tell")
	}
}
