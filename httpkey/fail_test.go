package httpkey_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

var errNotRendered = errors.New("the framework has not rendered the error")

// An adapter that could not get a handler's answer has no answer stored, whatever the
// response looks like.
func TestFailIsNeverStored(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"half": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/never")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "half of ")
		},
	} {
		for _, p := range []retrysafe.Policy{{}, {OnFailure: retrysafe.FailureStore}} {
			b := setup(t, withPolicy(p), withHandler(func(w http.ResponseWriter, r *http.Request) {
				write(w, r)
				httpkey.Fail(wrapped{wrapped{w}}, errNotRendered)
			}))
			got := b.post(t, key, `{}`)
			got.refused(t, 500, "attempt-unknown")
			if strings.Contains(got.body, "half of") || got.header.Get("Location") != "" || strings.Contains(got.body, errNotRendered.Error()) {
				t.Errorf("%s: the client sees %v %s", name, got.header, got.body)
			}
			if log := b.log.String(); !strings.Contains(log, errNotRendered.Error()) {
				t.Errorf("%s: the log does not have the cause: %s", name, log)
			}
			b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
			b.ranTimes(t, 1)
		}
	}
}

// An execution that the handler has settled stays as it is, and the client does not get
// the empty response.
func TestFailAfterASettlement(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) {
		run, _ := retrysafe.FromContext(r.Context())
		must(t, run.Release(r.Context(), errNotRendered))
		httpkey.Fail(w, errNotRendered)
	}))
	b.post(t, key, `{}`).refused(t, http.StatusInternalServerError, "attempt-failed")
	if log := b.log.String(); !strings.Contains(log, errNotRendered.Error()) {
		t.Errorf("the log does not have the cause: %s", log)
	}
	if got := b.state(t).State; got != retrysafe.StateRetryable {
		t.Errorf("the record is %s, want retryable", got)
	}
}

// What is already being sent goes on, and its outcome is stored.
func TestFailDuringAStream(t *testing.T) {
	t.Parallel()
	b := setup(t, through, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "first, ")
		must(t, http.NewResponseController(w).Flush())
		httpkey.Fail(w, errNotRendered)
		if _, err := fmt.Fprint(w, "second"); err != nil {
			t.Errorf("Write = %v", err)
		}
	}))
	if got := b.post(t, key, `{}`); got.status != 200 || got.body != "first, second" {
		t.Errorf("the client got %d %s", got.status, got.body)
	}
	b.post(t, key, `{}`).refused(t, 200, "response-not-stored")
}

// Outside a guard it does nothing, so that handlers stay testable.
func TestFailOutsideAGuard(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httpkey.Fail(wrapped{w}, errNotRendered)
	if w.Body.Len() > 0 || w.Code != http.StatusOK {
		t.Errorf("it wrote %d %s", w.Code, w.Body)
	}
}
