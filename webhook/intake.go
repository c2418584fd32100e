package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Reader says which key an event is about and what the event proves. If the event is
// about no key, it returns [ErrIgnore]; if the event carries no key where it should,
// [retrysafe.ErrNotFound], which [Options.Missing] answers; if the reader does not know
// such events, [ErrUnmatched]. Any other error, or a panic, is a fault of this side. After
// all but ErrIgnore the event is not remembered, and the provider delivers it again.
//
// A reader may run more than once for an event, but never after the event was
// processed, and must have no effects of its own. An event says what was true when it
// was made: if another event may still change the outcome, its finding is
// [retrysafe.FindingUnknown].
type Reader func(context.Context, Event) (Statement, error)

// MissingPolicy is the answer to an event whose key does not exist.
type MissingPolicy uint8

const (
	// MissingRetry: a 404, and the event is not remembered, so that the provider delivers
	// it again. The event may have arrived before the record became visible.
	MissingRetry MissingPolicy = iota
	// MissingAcknowledge: a 200, and the event is remembered. It is for an endpoint that also
	// gets events about operations that did not go through retrysafe, or whose provider
	// id is no longer found because they were settled.
	MissingAcknowledge
)

// Options configure an [Intake]. Nil and zero values select safe defaults.
type Options struct {
	// MaxBody bounds an event's body, in bytes. Default 1 MiB.
	MaxBody int64
	// Retention is how long an event is remembered. It must be longer than the provider
	// repeats a delivery, and longer than the scheme's tolerance. Default 7 days.
	Retention time.Duration
	// Missing is the answer to an event whose key does not exist.
	Missing MissingPolicy
	// Operations are those that the provider's events are about, as records name them.
	// An event about the key of another one is refused. Default: all.
	Operations []string
	// DownstreamKeys returns the downstream keys that are derived from a ref, one for
	// each outside call, see [retrysafe.DownstreamKey]. It is needed for events that are
	// found by [Statement.DownstreamKey], and called for each record that is searched.
	DownstreamKeys func(retrysafe.Ref) []string
	// Find returns the key for a provider's id, from a table of yours, or
	// [retrysafe.ErrNotFound]. Without Find the intake scans unknown outcomes one by
	// one, and finds no other record by a provider's id.
	Find func(ctx context.Context, providerRef string) (retrysafe.Ref, error)
	// MaxSearch bounds how many records are searched for a provider's id or a downstream
	// key. Beyond it the event is refused, and the provider delivers it again. Default
	// 10,000.
	MaxSearch int
	// StoreTimeout bounds each store operation on a key. Default 2 s.
	StoreTimeout time.Duration
	// Observer gets an event for each record that the intake changes. Set it to the
	// engine's observer.
	Observer retrysafe.Observer
	// Logger gets contradictions and faults of this side. Bodies and keys are not
	// logged; the text of a reader's error is. Default slog.Default().
	Logger *slog.Logger
}

// An Intake receives a provider's events. It is safe for concurrent use.
type Intake struct {
	name   string
	scope  string // of the events' ids
	engine *retrysafe.Engine
	scheme Scheme
	read   Reader
	o      Options
	counts map[string]*atomic.Uint64

	known              known
	unknown, unsettled *survey
}

var _ http.Handler = (*Intake)(nil)

const (
	maxName    = 100
	maxEventID = 1024 // the engine's limit for keys

	defaultBody      = 1 << 20
	defaultSearch    = 10_000
	defaultRetention = 7 * 24 * time.Hour
	defaultTimeout   = 2 * time.Second
	unknownRest      = 1 // of the surveys, see [survey]
	unsettledRest    = 4
	maxRun           = 30 * time.Second // longer than providers wait for a response
)

// New returns an intake for the events of one provider. The name separates its events
// from those of other providers: two intakes with one name over one store share the
// remembered events. Opts may be nil.
func New(name string, e *retrysafe.Engine, s Scheme, read Reader, opts *Options) (*Intake, error) {
	if e == nil || s == nil || read == nil {
		return nil, errors.New("webhook: New needs an engine, a scheme and a reader")
	}
	if name == "" || len(name) > maxName {
		return nil, fmt.Errorf("webhook: the name is empty or over %d bytes", maxName)
	}
	if c, ok := s.(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			return nil, err
		}
	}
	in := &Intake{name: name, scope: retrysafe.SystemScope("webhook/" + name), scheme: s, read: read, counts: make(map[string]*atomic.Uint64)}
	if opts != nil {
		in.o = *opts
	}
	o := &in.o
	if o.MaxBody < 0 || o.MaxSearch < 0 || o.StoreTimeout < 0 || o.Missing > MissingAcknowledge {
		return nil, errors.New("webhook: an option is negative, or Missing is not one of its constants")
	}
	o.MaxBody = cmp.Or(o.MaxBody, defaultBody)
	o.MaxSearch = cmp.Or(o.MaxSearch, defaultSearch)
	o.StoreTimeout = cmp.Or(o.StoreTimeout, defaultTimeout)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	// Settling is a compare-and-swap, and a second run finds it done: that is a keyed
	// effect.
	var err error
	if in.engine, err = e.With(retrysafe.Policy{
		Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, OnFailure: retrysafe.FailureByProof,
		InFlight: retrysafe.InFlightWait, OnExpired: retrysafe.ExpiredRerun, // nothing is inherited: it is no operation of the user's
		Lease: 30 * time.Second, Wait: 5 * time.Second, Reconcile: 30 * time.Second, Patience: time.Hour,
		MaxRun: maxRun, Retention: cmp.Or(o.Retention, defaultRetention),
	}); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	in.unknown = newSurvey(unknownRest, retrysafe.StateUnknown, retrysafe.StateAccepted)
	in.unsettled = newSurvey(unsettledRest, retrysafe.StateUnknown, retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateRetryable)
	for _, p := range problems {
		in.counts[p.code] = new(atomic.Uint64)
	}
	for _, out := range outcomes {
		if in.counts[out.String()] == nil {
			in.counts[out.String()] = new(atomic.Uint64)
		}
	}
	return in, nil
}

// Counts returns how often events ended with each outcome and problem. Redeliveries of
// processed events are not counted.
func (in *Intake) Counts() map[string]uint64 {
	all := make(map[string]uint64, len(in.counts))
	for code, n := range in.counts {
		all[code] = n.Load()
	}
	return all
}

// ServeHTTP receives one event. A 2xx says that the event was processed and its answer
// is durable.
func (in *Intake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := in.take(w, r)
	if err == nil {
		writeResult(w, &out)
		return
	}
	re := explain(err)
	in.counts[re.code].Add(1)
	re.write(w)
}

// take processes one request and returns its answer.
func (in *Intake) take(w http.ResponseWriter, r *http.Request) (out retrysafe.Outcome, err error) {
	var ev Event
	defer func() {
		if p := recover(); p != nil {
			in.panicked(&ev, p)
			err = refuse(notRead, nil)
		}
	}()
	if r.Method != http.MethodPost {
		return out, refuse(notPost, nil)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, in.o.MaxBody))
	if err != nil {
		if over := new(http.MaxBytesError); errors.As(err, &over) {
			return out, refuse(bodyTooLarge, nil)
		}
		return out, refuse(bodyUnreadable, nil)
	}
	got, err := in.scheme.Verify(r.Header, body)
	switch {
	case errors.Is(err, ErrMalformed):
		return out, refuse(eventMalformed, nil)
	case errors.Is(err, ErrLate):
		return out, refuse(eventLate, nil)
	case err != nil:
		return out, refuse(eventForged, nil)
	case got.ID == "" || len(got.ID) > maxEventID:
		return out, refuse(eventMalformed, nil)
	}
	ev = Event{ID: got.ID, At: got.At, Header: r.Header, Body: body}
	// The call has no fingerprint: providers change the bytes of an event between
	// deliveries, and the signature covers the id, or else the key that stands for it.
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: in.scope, Key: cmp.Or(got.key, ev.ID)}, Operation: "webhook " + in.name}
	out, err = in.engine.Do(r.Context(), call, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		done, err := in.handle(ctx, &ev)
		if err == nil {
			in.counts[done.String()].Add(1)
		}
		return done.result(), err
	})
	if re := new(refusal); errors.As(err, &re) && re.cause != nil {
		in.o.Logger.Warn("retrysafe: an event was refused; the provider should deliver it again", "webhook", in.name, "event", ev.ID, "code", re.code, "error", re.cause)
	}
	return out, err
}

// explain returns the refusal that the provider gets for an error.
func explain(err error) *refusal {
	var re *refusal
	var refused *retrysafe.RefusedError
	switch {
	case errors.As(err, &re):
		return re
	case errors.As(err, &refused):
		re = refuse(storeUnavailable, nil)
		re.retryAfter = refused.RetryAfter
		switch {
		case errors.Is(err, retrysafe.ErrInFlight):
			re.problem = eventInFlight
		case errors.Is(err, retrysafe.ErrUnreadable):
			re.problem = recordUnreadable
		}
		return re
	default: // the answer is not durable yet, or the provider has hung up
		return refuse(storeUnavailable, nil)
	}
}

// panicked logs a panic of the scheme or the reader. It logs the text only of a runtime
// error: any other panic value may quote the body.
func (in *Intake) panicked(ev *Event, p any) {
	text := fmt.Sprintf("%T", p)
	if e, ok := p.(runtime.Error); ok {
		text = e.Error()
	}
	in.o.Logger.Error("retrysafe: reading an event panicked", "webhook", in.name, "event", ev.ID, "panic", text, "stack", string(debug.Stack()))
}
