// Package api is the JSON API of the console: what the commands keys, outbox and reconcile
// do, over HTTP. docs/openapi/admin.yaml specifies it.
//
// A request comes with the person that package access has found. Reading needs the role
// read. Actions need the role act, and so do the contents of records: a look at them is an
// action, and in the audit.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// Options configure an [API]. Service is required.
type Options struct {
	Service *operator.Service
	Outbox  outbox.Store
	Window  time.Duration
	Logger  *slog.Logger
	// Status and Reconcile are as in console.Overview.
	Status    func(context.Context) (any, error)
	Reconcile func(ctx context.Context, duties []string) (map[string]map[string]uint64, error)
}

// An API serves the paths below /api/v1/. Close it when done.
type API struct {
	Options
	letters    *operator.DeadLetters // nil: there is no outbox
	mux        *http.ServeMux
	jobs       *jobs
	selections *selections
}

// New returns an API. It starts nothing.
func New(o Options) *API {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	a := &API{Options: o, mux: http.NewServeMux(), jobs: newJobs(), selections: newSelections()}
	if o.Outbox != nil {
		a.letters = o.Service.DeadLetters(o.Outbox, o.Window)
	}
	paths := map[string]map[string]route{}
	for _, rt := range routes {
		if paths[rt.path] == nil {
			paths[rt.path] = map[string]route{}
		}
		paths[rt.path][rt.method] = rt
	}
	for path, methods := range paths {
		a.mux.Handle(base+path, a.dispatch(methods))
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem(http.StatusNotFound, adminwire.CodeNotFound, "there is nothing at this path"))
	})
	return a
}

// ServeHTTP serves one request. Its context has the person that it comes from.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Close stops the batches that run and waits until they have ended, or ctx is done.
func (a *API) Close(ctx context.Context) error { return a.jobs.close(ctx) }

const base = "/api/v1"

// A route is one operation of the API.
type route struct {
	method, path string
	role         access.Role
	// large says that the body may hold an answer.
	large bool
	serve func(*API, *call) (any, error)
}

// A call is one request to a route.
type call struct {
	*http.Request
	by access.Person
	// status is that of a successful answer.
	status int
}

// detail is how much of a record the person gets.
func (c *call) detail() adminwire.Detail {
	if c.by.May(access.RoleAct) {
		return adminwire.Headers
	}
	return adminwire.Names
}

// acting returns the context of an action. The end of the connection does not interrupt an
// action: its outcome would be unknown.
func (c *call) acting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Context()), actionTimeout)
}

const actionTimeout = time.Minute

// dispatch serves a path by the method of a request.
func (a *API) dispatch(methods map[string]route) http.Handler {
	var allowed []string
	for method := range methods {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		rt, ok := methods[method]
		if !ok {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			writeProblem(w, problem(http.StatusMethodNotAllowed, "method-not-allowed", "this path takes "+strings.Join(allowed, ", ")))
			return
		}
		c := &call{Request: r, by: access.From(r.Context()), status: http.StatusOK}
		if !c.by.May(rt.role) {
			writeProblem(w, problem(http.StatusForbidden, adminwire.CodeForbidden, "the role of this token does not allow it; it takes the role act"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, rt.maxBody())
		body, err := rt.serve(a, c)
		if err != nil {
			writeProblem(w, a.problemOf(c, err))
			return
		}
		writeJSON(w, "application/json", c.status, body)
	})
}

func (rt *route) maxBody() int64 {
	if rt.large {
		return 24 << 20 // an answer of 16 MiB, in base64
	}
	return 64 << 10
}

func writeJSON(w http.ResponseWriter, kind string, status int, body any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		w.WriteHeader(http.StatusInternalServerError) // every body is made of plain values
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error is the connection's
}

// read fills to with the JSON that the request has. What to does not have is refused: a
// field that is misspelt must not count as absent.
func (c *call) read(to any) error {
	if kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &refusal{problem(http.StatusUnsupportedMediaType, "not-json", "send the body as application/json")}
	}
	d := json.NewDecoder(c.Body)
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after the object")
		}
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &refusal{problem(http.StatusRequestEntityTooLarge, "too-large", "the body is too large")}
	}
	if err != nil {
		return invalid("the body cannot be read: %v", err)
	}
	return nil
}
