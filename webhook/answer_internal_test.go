package webhook

import (
	"net/http/httptest"
	"testing"
	"time"
)

// A provider is told to come again after the whole seconds that cover the pause, and after
// half a minute where no pause is known.
func TestPausesAreWholeSeconds(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]string{
		0: "30", -time.Second: "30", 1: "1", time.Second: "1", time.Second + 1: "2", time.Minute: "60",
	} {
		w := httptest.NewRecorder()
		(&refusal{problem: keyInFlight, retryAfter: pause}).write(w)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("after a pause of %v: Retry-After is %q, want %q", pause, got, want)
		}
	}
}
