package ginkey_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/ginkey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A bed is an application with one guarded route.
type bed struct {
	app *gin.Engine
	mem *memstore.Store
	log strings.Builder
}

// newBed returns an application whose route has the given handlers before and behind the
// guard.
func newBed(t *testing.T, o httpkey.Options, before, behind []gin.HandlerFunc) *bed {
	t.Helper()
	b := &bed{app: gin.New(), mem: memstore.New(nil)}
	o.Logger = slog.New(slog.NewTextHandler(&b.log, nil))
	e, err := retrysafe.New(b.mem, nil)
	must(t, err)
	guard, err := ginkey.New(e, tenant, &o)
	must(t, err)
	b.app.POST("/", slices.Concat(before, []gin.HandlerFunc{guard}, behind)...)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"

func (b *bed) post(t *testing.T) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{}`))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	b.app.ServeHTTP(w, r)
	return w
}

type handlers = []gin.HandlerFunc

// A middleware that renders errors stands before the guard: it comes too late, and the
// empty response is not an answer. The log names the remedy.
func TestErrorRenderedBeforeTheGuard(t *testing.T) {
	t.Parallel()
	polite := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(http.StatusPaymentRequired, gin.H{"error": c.Errors.Last().Error()})
		}
	}
	b := newBed(t, httpkey.Options{}, handlers{polite}, handlers{func(c *gin.Context) { _ = c.Error(adaptertest.ErrRefused) }})
	if got := b.post(t); got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "attempt-unknown") {
		t.Errorf("got %d %s, want 500 attempt-unknown", got.Code, got.Body)
	}
	if log := b.log.String(); !strings.Contains(log, "place the middleware that renders errors behind") || !strings.Contains(log, adaptertest.ErrRefused.Error()) {
		t.Errorf("the log does not name the remedy and the error: %s", log)
	}
	if got := b.post(t); got.Code != http.StatusConflict {
		t.Errorf("the retry gets %d %s, want 409", got.Code, got.Body)
	}
}

// An error that was noted before the guard is not the handler's, and one beside a response
// is only a note.
func TestErrorBesideAnAnswer(t *testing.T) {
	t.Parallel()
	note := func(c *gin.Context) { _ = c.Error(errors.New("a note")) }
	for _, hs := range [][]handlers{{{note}, {}}, {{}, {note}}} {
		b := newBed(t, httpkey.Options{}, hs[0], append(hs[1], func(c *gin.Context) { c.String(http.StatusCreated, "made") }))
		for range 2 {
			if got := b.post(t); got.Code != http.StatusCreated || got.Body.String() != "made" {
				t.Errorf("got %d %s", got.Code, got.Body)
			}
		}
	}
}

// Gin's recovery may stand behind the guard as well, which then settles the 500 that it
// sends; or before it, for a guard that lets panics go on.
func TestRecoveryOnEitherSide(t *testing.T) {
	t.Parallel()
	breaks := func(*gin.Context) { panic("a bug") }
	for name, b := range map[string]*bed{
		"behind": newBed(t, httpkey.Options{}, nil, handlers{gin.Recovery(), breaks}),
		"before": newBed(t, httpkey.Options{Repanic: true}, handlers{gin.Recovery()}, handlers{breaks}),
	} {
		if got := b.post(t); got.Code != http.StatusInternalServerError || got.Body.Len() > 0 {
			t.Errorf("%s: got %d %s, want the 500 of gin", name, got.Code, got.Body)
		}
		if got := b.post(t); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "outcome-unknown") {
			t.Errorf("%s: the retry gets %d %s, want 409 outcome-unknown", name, got.Code, got.Body)
		}
	}
}

// Handlers find the same gin.ResponseWriter as without a guard.
func TestWriterIsGins(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(c *gin.Context, note func()){
		"nothing but a status": func(c *gin.Context, note func()) {
			c.Status(http.StatusAccepted)
			note()
		},
		"status changed until it is written": func(c *gin.Context, note func()) {
			c.Status(http.StatusAccepted)
			c.Status(http.StatusCreated)
			note()
			c.Writer.WriteHeaderNow()
			note()
			c.Status(http.StatusTeapot)
			note()
		},
		"body": func(c *gin.Context, note func()) {
			note()
			c.String(http.StatusCreated, "one")
			note()
			_, _ = c.Writer.WriteString(" two")
			note()
		},
		"write without a status": func(c *gin.Context, note func()) {
			_, _ = c.Writer.Write([]byte("one"))
			note()
		},
		"flush": func(c *gin.Context, note func()) {
			c.Status(http.StatusCreated)
			c.Writer.Flush()
			note()
		},
		"keep the status": func(c *gin.Context, note func()) {
			c.Status(http.StatusCreated)
			c.JSON(-1, gin.H{"a": 1})
			note()
		},
		"abort with a status": func(c *gin.Context, note func()) {
			c.AbortWithStatus(http.StatusNotFound)
			note()
		},
		"abort with an error": func(c *gin.Context, note func()) {
			_ = c.AbortWithError(http.StatusNotFound, adaptertest.ErrRefused)
			note()
		},
		"redirect": func(c *gin.Context, note func()) {
			c.Redirect(http.StatusSeeOther, "/elsewhere")
			note()
		},
		"no body allowed": func(c *gin.Context, note func()) {
			c.JSON(http.StatusNoContent, gin.H{"a": 1})
			note()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []string
			h := func(c *gin.Context) {
				handler(c, func() {
					seen = append(seen, fmt.Sprint(c.Writer.Status(), c.Writer.Size(), c.Writer.Written()))
				})
			}
			outer := func(c *gin.Context) {
				c.Next()
				seen = append(seen, fmt.Sprint("outer", c.Writer.Status(), c.IsAborted()))
			}
			guarded := newBed(t, httpkey.Options{}, handlers{outer}, handlers{h})
			plain := gin.New()
			plain.POST("/", outer, h)
			got := guarded.post(t)
			with := seen
			seen = nil
			want := (&bed{app: plain}).post(t)
			if !slices.Equal(with, seen) {
				t.Errorf("with a guard the handlers see %q, without %q", with, seen)
			}
			if got.Code != want.Code || got.Body.String() != want.Body.String() || got.Header().Get("Location") != want.Header().Get("Location") {
				t.Errorf("with a guard the client gets %d %q, without %d %q", got.Code, got.Body, want.Code, want.Body)
			}
			if again := guarded.post(t); again.Code != want.Code || again.Body.String() != want.Body.String() {
				t.Errorf("the retry gets %d %q, want %d %q", again.Code, again.Body, want.Code, want.Body)
			}
		})
	}
}

// Middleware before the guard finds its own request and writer again, and a chain that was
// aborted if, and only if, the handler did not run.
func TestOuterMiddlewareFindsItsContext(t *testing.T) {
	t.Parallel()
	var seen []string
	outer := func(c *gin.Context) {
		r, w := c.Request, c.Writer
		c.Next()
		seen = append(seen, fmt.Sprint(r == c.Request, w == c.Writer, c.IsAborted(), c.Writer.Status(), c.Writer.Size()))
	}
	order := func(name string) gin.HandlerFunc {
		return func(c *gin.Context) {
			seen = append(seen, name)
			c.Next()
			seen = append(seen, "/"+name)
		}
	}
	b := newBed(t, httpkey.Options{}, handlers{outer}, handlers{order("a"), order("b"), func(c *gin.Context) { c.String(http.StatusCreated, "made") }})
	b.post(t)
	b.post(t)
	want := []string{"a", "b", "/b", "/a", "true true false 201 4", "true true true 201 4"}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}

// Middleware behind the guard may wrap the writer, and leave its own in the context.
func TestWriterOfOtherMiddleware(t *testing.T) {
	t.Parallel()
	wraps := func(c *gin.Context) { c.Writer = struct{ gin.ResponseWriter }{c.Writer} }
	b := newBed(t, httpkey.Options{}, nil, handlers{wraps, func(c *gin.Context) { c.Status(http.StatusNoContent) }})
	for range 2 {
		if got := b.post(t); got.Code != http.StatusNoContent {
			t.Errorf("got %d, want 204", got.Code)
		}
	}
}

// Without its body a request looks like any other one.
func TestBodyThatWasReadBefore(t *testing.T) {
	t.Parallel()
	b := newBed(t, httpkey.Options{}, handlers{func(c *gin.Context) { _ = c.ShouldBindJSON(new(any)) }}, handlers{func(*gin.Context) { t.Error("the handler ran") }})
	if got := b.post(t); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "body-unreadable") {
		t.Errorf("got %d %s, want 400 body-unreadable", got.Code, got.Body)
	}
	if log := b.log.String(); !strings.Contains(log, "place it behind the guard") {
		t.Errorf("the log does not say what to do: %s", log)
	}
}

// A guarded handler goes on when its client has disconnected, so it is not told.
func TestHandlerIsNotToldThatItsClientIsGone(t *testing.T) {
	t.Parallel()
	told := make(chan bool, 1)
	b := newBed(t, httpkey.Options{}, nil, handlers{func(c *gin.Context) {
		told <- c.Writer.CloseNotify() != nil
		c.Status(http.StatusCreated)
	}})
	b.post(t)
	if <-told {
		t.Error("the handler got a channel that tells it")
	}
}

// A status that is only set is a part of the answer that a transaction stores.
func TestCompleteTxHasTheStatus(t *testing.T) {
	t.Parallel()
	var b *bed
	b = newBed(t, httpkey.Options{Policy: &retrysafe.Policy{Effects: retrysafe.EffectsInTx}}, nil, handlers{func(c *gin.Context) {
		ctx := c.Request.Context()
		tx, err := b.mem.Begin(ctx)
		must(t, err)
		c.Status(http.StatusNoContent)
		must(t, httpkey.CompleteTx(ctx, c.Writer, tx))
		must(t, tx.Commit(ctx))
	}})
	for range 2 {
		if got := b.post(t); got.Code != http.StatusNoContent {
			t.Errorf("got %d %s, want 204", got.Code, got.Body)
		}
	}
}

// The functions of the options find the gin.Context too.
func TestOptionsFindTheContext(t *testing.T) {
	t.Parallel()
	user := "alice"
	b := newBed(t, httpkey.Options{Bind: func(r *http.Request) (string, error) { return ginkey.Context(r).GetString("user"), nil }},
		handlers{func(c *gin.Context) { c.Set("user", user) }}, handlers{func(c *gin.Context) { c.String(http.StatusCreated, c.GetString("user")) }})
	b.post(t)
	user = "bob"
	if got := b.post(t); got.Body.String() != "bob" {
		t.Errorf("got %s, want the answer of another user's key", got.Body)
	}
	if c := ginkey.Context(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)); c != nil {
		t.Errorf("a request that gin does not handle has the context %v", c)
	}
}
