package linear

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe"
)

const paymentOperation = "POST /payments"

// byEngine asks as a program does. It cannot look, so it asks.
func (c *caller) byEngine(ctx context.Context, q *question) reply {
	q.look = false
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: c.name, Key: q.key}, Operation: paymentOperation, Fingerprint: retrysafe.Fingerprint{Alg: 1}}
	if q.other {
		call.Fingerprint.Sum[0] = 1
	}
	var ended error // by a wish
	out, err := c.engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		answer := q.run()
		switch q.ending {
		case release:
			ended = retrysafe.NotExecuted(errors.New("nothing was done"))
		case vanish:
			ended = errors.New("the outcome is unknown")
		case succeed:
		}
		return retrysafe.Result{Status: http.StatusCreated, Header: map[string][]string{"Location": {location(c.tenant, q.key)}}, Body: []byte(answer)}, ended
	})
	got := reply{is: ran, answer: string(out.Body), all: fmt.Sprintf("%s %v %v", out.Body, out.Header, err)}
	switch {
	case err == nil && out.Header["Location"][0] != location(c.tenant, q.key):
		got.is = unexpected
	case err == nil && out.Replayed:
		got.is = replayed
	case err == nil:
	case errors.Is(err, retrysafe.ErrUnavailable), errors.Is(err, retrysafe.ErrUnsettled), ctx.Err() != nil:
		got.is = noAnswer
	case errors.Is(err, retrysafe.ErrMismatch):
		got.is = mismatch
	case errors.Is(err, retrysafe.ErrInFlight):
		got.is = inFlight
	case errors.Is(err, retrysafe.ErrUnknown):
		got.is = uncertain
	case ended != nil && errors.Is(err, ended):
		got.is = failed
	default:
		got.is = unexpected
	}
	return got
}

// location is the Location header of an answer.
func location(t *tenant, key string) string {
	return "/of/" + t.token + "/" + url.PathEscape(key)
}

// The request's context has the authenticated principal, and what the operation does.
type (
	principalKey struct{}
	questionKey  struct{}
)

type httpQuestion struct {
	*tenant
	*question
}

func principal(r *http.Request) (string, error) {
	return r.Context().Value(principalKey{}).(string), nil
}

// serve is the handler behind the guard.
func serve(w http.ResponseWriter, r *http.Request) {
	v := r.Context().Value(questionKey{}).(httpQuestion)
	answer := v.run()
	w.Header().Set("Location", location(v.tenant, v.key))
	w.Header().Set("ETag", strconv.Quote(v.token))
	w.Header().Set("Set-Cookie", "session="+v.token)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(answer)) // into memory
}

// byHTTP asks as a client does. Now and then it first asks as a principal that a guard
// must refuse.
func (c *caller) byHTTP(ctx context.Context, q *question) reply {
	q.ending = succeed
	if c.rand.IntN(50) == 0 {
		name := invalidPrincipals[c.rand.IntN(len(invalidPrincipals))]
		none := *q
		none.run = func() string {
			c.r.Violatef("S7", q.key, "the operation ran for %q, which names no caller", name)
			return ""
		}
		c.expect(q.key, c.request(ctx, name, &none), notIdentified, "")
	}
	return c.request(ctx, c.name, q)
}

func (c *caller) request(ctx context.Context, name string, q *question) reply {
	ctx = context.WithValue(context.WithValue(ctx, principalKey{}, name), questionKey{}, httpQuestion{c.tenant, q})
	method, handler := http.MethodPost, c.web
	if q.look {
		method, handler = http.MethodGet, c.status
	}
	body := "amount=1"
	if q.other {
		body = "amount=2"
	}
	r, err := http.NewRequestWithContext(ctx, method, "/payments", strings.NewReader(body))
	if err != nil {
		return reply{is: unexpected, all: err.Error()}
	}
	r.Header.Set("Idempotency-Key", strconv.Quote(q.key))
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	handler.ServeHTTP(w, r)
	return w.reply(c.tenant, q.key)
}

// A recorder is a response that stays here.
type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

func (w *recorder) reply(t *tenant, key string) reply {
	got := reply{is: unexpected, answer: w.body.String(), all: fmt.Sprintf("%d %v %s", w.status, w.header, w.body.String())}
	again := w.header.Get("Idempotent-Replayed") == "true"
	own := w.header.Get("Location") == location(t, key) && w.header.Get("ETag") == strconv.Quote(t.token)
	bare := w.header.Get("Location") == "" && w.header.Get("ETag") == "" && w.header.Get("Set-Cookie") == "" && !again
	switch {
	case w.status == http.StatusCreated && own && again && w.header.Get("Set-Cookie") == "":
		got.is = replayed
	case w.status == http.StatusCreated && own && !again:
		got.is = ran
	case !bare: // nothing else has these
	case w.status == http.StatusServiceUnavailable:
		got.is = noAnswer
	case w.status == http.StatusUnprocessableEntity:
		got.is = mismatch
	case w.status == http.StatusNotFound:
		got.is = absent
	case w.status == http.StatusForbidden:
		got.is = notIdentified
	case w.status == http.StatusConflict && strings.Contains(got.answer, "in-flight"):
		got.is = inFlight
	case w.status == http.StatusConflict:
		got.is = uncertain
	}
	return got
}
