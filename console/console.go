// Package console is the operators' side of retrysafe over HTTP: an API and pages that show
// records and let a person settle them. It is an [http.Handler] for a listener that clients
// do not reach:
//
//	c, err := console.New(console.Options{
//		Service: service, // operator.New over the store that the engines use
//		Tokens:  []console.Token{{Name: "anna", Role: "act", Secret: secret}},
//		Prefix:  "/retrysafe",
//	})
//	mux.Handle("/retrysafe/", c)
//
// Each request is authenticated by a token, or in a browser by a session that began with
// one. A token has a role: read shows records without what clients sent and got, act also
// changes records and reveals their contents. The name of the token is the author of every
// action in the audit; a request cannot name another one.
//
// An action names the revision that its author saw, and is refused if the record has
// changed since. docs/admin-api.md describes the API, docs/openapi/admin.yaml specifies it.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/console/internal/api"
	"github.com/retrysafe/retrysafe/console/internal/pages"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// Options configure a [Handler]. Service and Tokens are required.
type Options struct {
	// Service carries out the actions. It must be over the same store that the engines
	// use, cache and encryption layers included.
	Service *operator.Service
	// Outbox holds the messages that commit with the records. Nil: there is none.
	Outbox outbox.Store
	// Window is how long the receiver of the outbox remembers a key, as
	// [operator.Service.DeadLetters] takes it.
	Window time.Duration
	// Tokens are those of the people that are let in.
	Tokens []Token
	// Prefix is the path under which the handler is mounted, such as "/retrysafe". Empty
	// is the root.
	Prefix string
	// Overview says what the store alone cannot tell.
	Overview Overview
	// Logger gets warnings and failures, never a key or a token. Default slog.Default().
	Logger *slog.Logger
}

// A Token is a secret that stands for a person.
type Token struct {
	// Name is what the audit shows as the author.
	Name string
	// Role is "read" or "act".
	Role string
	// Secret has at least 16 characters.
	Secret string
}

// An Overview are functions that say what the program around the console knows. Each may
// be nil, and is called concurrently.
type Overview struct {
	// Status describes program and store, as a value for JSON.
	Status func(context.Context) (any, error)
	// Reconcile makes one pass of the named background duties, or of all, and returns what
	// each has done.
	Reconcile func(ctx context.Context, duties []string) (map[string]map[string]uint64, error)
	// Facts is what the pages show beside records.
	Facts Facts
}

// A Handler serves pages under "/" and the API under "/api/v1/". It is safe for concurrent
// use.
type Handler struct {
	mux   *http.ServeMux
	api   *api.API
	pages *pages.Pages
}

// New returns a handler, or an error that says which option cannot be used. It starts
// nothing; a batch that a request begins runs until it ends or [Handler.Close] stops it.
func New(o Options) (*Handler, error) {
	if o.Service == nil {
		return nil, errors.New("console: New needs a Service")
	}
	if o.Prefix != "" && (!strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") || strings.ContainsAny(o.Prefix, " ;?#{}")) {
		return nil, fmt.Errorf("console: the prefix %q must begin with a slash and end without one, such as /retrysafe", o.Prefix)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	guard, err := access.NewGuard(access.Options{Tokens: tokens(o.Tokens), Prefix: o.Prefix, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	h := &Handler{mux: http.NewServeMux(), api: api.New(api.Options{
		Service: o.Service, Outbox: o.Outbox, Window: o.Window, Logger: o.Logger, Status: o.Overview.Status, Reconcile: o.Overview.Reconcile,
	})}
	h.mux.Handle(o.Prefix+"/api/", http.StripPrefix(o.Prefix, guard.API(h.api, api.Refuse)))
	if err := h.addPages(&o, guard); err != nil {
		return nil, err
	}
	return h, nil
}

// tokens returns the tokens with their roles. A role that there is not is none.
func tokens(list []Token) (all []access.Token) {
	roles := map[string]access.Role{"read": access.RoleRead, "act": access.RoleAct}
	for _, t := range list {
		all = append(all, access.Token{Name: t.Name, Role: roles[t.Role], Secret: t.Secret})
	}
	return all
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close stops the batches that run, each after the records that it is changing, and waits
// until they have ended or ctx is done. A batch that was stopped goes on when it is
// repeated under its ID. No batch begins after Close.
func (h *Handler) Close(ctx context.Context) error {
	h.pages.Close()
	return h.api.Close(ctx)
}
