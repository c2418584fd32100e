package httpkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// A ScopeFunc returns the tenant that owns a request's key: that of the authenticated
// caller. It must never be taken from the body. An empty scope or an error refuses the
// request, with a 403. An error with the method "Challenge() string" refuses it with a
// 401 instead, and with that challenge in WWW-Authenticate; one with the method
// "Problem() *Problem" refuses it with that problem, and so does such an error of the
// body's reader. It runs after the application's own authentication, and before the body
// is read.
type ScopeFunc func(*http.Request) (string, error)

// Options are what a [Guard] may be given. Nil and zero values are the safe
// defaults.
type Options struct {
	// Profile is the wire contract. Default [IETF].
	Profile *Profile
	// Policy overrides the engine's policy. What it leaves unset is the engine's.
	Policy *retrysafe.Policy

	// Header is the name of the key's header. Default Idempotency-Key.
	Header string
	// Methods are the guarded methods; all others pass untouched. Default POST
	// and PATCH.
	Methods []string
	// Optional lets requests without a key pass unguarded instead of refusing
	// them.
	Optional bool
	// Observe enforces nothing: requests run as if there were no guard, and those that
	// would have been refused or replayed are counted and reported. For rolling out.
	Observe bool

	// Strict refuses keys that are not quoted, where the profile quotes them.
	Strict bool
	// MinKeyLength is the length below which [Options.ShortKeys] applies. Default 16.
	MinKeyLength int
	// ShortKeys and PersonalData say how to treat keys that are easy to guess or look
	// like an e-mail address or a telephone number. Default [StrictnessWarn].
	ShortKeys, PersonalData Strictness

	// Bind narrows the scope to one principal of the tenant.
	Bind ScopeFunc
	// PerOperation narrows the scope to one operation, so that one key may be used on
	// several. By default such a reuse is a mismatch.
	PerOperation bool
	// Operation names what a request asks for. Default: the pattern of
	// http.ServeMux that matched, or method and path. An empty name says that the route is
	// unknown: the request is refused.
	Operation func(*http.Request) string

	// MaxRequest and MaxResponse bound bodies, in bytes. Default 1 MiB each.
	MaxRequest, MaxResponse int64
	// Encoded says how to treat requests with a Content-Encoding. Default
	// [EncodedRefuse].
	Encoded EncodedPolicy
	// Stream says what Flush does. Default [StreamHold].
	Stream StreamPolicy
	// ReplayHeaders are response headers to store besides the default ones.
	ReplayHeaders []string
	// NotExecuted are the statuses by which a handler says that it has refused the
	// request before it did anything: the answer is not stored, and a retry runs. Nil
	// means 401, 403, 408, 425 and 429; an empty list that is not nil means none.
	NotExecuted []int
	// Tx runs each handler in a transaction of a store, in which its writes and its
	// response are committed together: Tx: httpkey.InTx(store). The handler finds the
	// transaction by [Tx], and the rules of [TxHandler] hold: a server error rolls back.
	// The effects are then [retrysafe.EffectsInTx].
	Tx TxRunner
	// AllowEmpty lets a handler that writes neither a status nor a body answer with an
	// empty 200, as net/http does. By default that is no answer: the attempt has failed.
	AllowEmpty bool

	// Include and Exclude choose the fields of JSON and form bodies that count in
	// the fingerprint, as JSON pointers ("/amount", "/items/*/sku"). A form's
	// field is "/name". Default: all.
	Include, Exclude []string
	// FingerprintHeaders are request headers that count in the fingerprint.
	FingerprintHeaders []string
	// FormerFields are choices of Include, Exclude and FingerprintHeaders that were in
	// force before. A record names the choice that it was stored under, and a retry is
	// compared by that one: keep a former choice for as long as its records live. A
	// record of a choice that is not listed is refused, never guessed at.
	FormerFields []Fields
	// Secrets make the fingerprints HMACs with a key per tenant. The first is
	// current; keep former ones for as long as their records live.
	Secrets []Secret

	// FirstSent refuses requests whose Idempotency-First-Sent header is older
	// than the retention: their answer may be forgotten already.
	FirstSent bool
	// RequireFirstSent does the same, and refuses keyed requests without that header.
	RequireFirstSent bool
	// Limits bound what one tenant may do.
	Limits Limits
	// Busy, if set, is called before a key is reserved. If it returns a problem,
	// nothing is reserved, and a request that would run is refused with the problem; a
	// known key still gets its answer. It is not called for requests that are run
	// later.
	Busy func(retrysafe.Ref) *Problem
	// StatusURL returns where the outcome of a request in flight can be looked up, for
	// the Location of a 202.
	StatusURL func(r *http.Request, key string) string

	// Async stores requests for a [Worker] instead of running them. A client gets a
	// 202, also on each retry, until there is an answer. Then it gets the answer. URL
	// and body are stored as they came: seal the store if there may be secrets in them.
	Async bool
	// KeepHeaders are request headers to store with such a request, besides the default
	// ones and FingerprintHeaders. The handler gets no others.
	KeepHeaders []string
	// KeepCredentials are request headers to store although they are credentials, such
	// as Authorization. The store must encrypt its content (store/sealed): otherwise
	// [New] fails.
	KeepCredentials []string
	// Restore returns ctx with the values that authentication had put there when the
	// request came, for the handler that runs it later. Ref says whose request it is;
	// see [Caller]. After an error the request is tried again, until
	// [retrysafe.Policy.Patience] ends.
	Restore func(ctx context.Context, r *http.Request, ref retrysafe.Ref) (context.Context, error)

	// Repanic lets a handler's panic go on after it was settled, instead of
	// answering 500 and logging it.
	Repanic bool
	// Reconciled says that a resolver or a webhook finds out what became of requests
	// whose outcome is unknown. Then a client is told that it is being looked into, and
	// otherwise that an operator has to find out.
	Reconciled bool
	// ProblemBase is put before a problem's code to make its type. Default: the
	// pages of this project.
	ProblemBase string
	// Report is called for everything that the guard refused or warns of, and in
	// observe mode for everything that it would have refused or replayed.
	Report func(Notice)
	// Disposition is called at the end of each guarded request, with what became of it. It
	// must be quick.
	Disposition func(*http.Request, Disposition)
	// Logger gets warnings and panics. Default slog.Default().
	Logger *slog.Logger
}

// Strictness is how a guard treats a doubtful key.
type Strictness uint8

const (
	// StrictnessWarn lets the key pass and reports it.
	StrictnessWarn Strictness = iota
	// StrictnessRefuse answers 400.
	StrictnessRefuse
	// StrictnessIgnore lets it pass without a report.
	StrictnessIgnore
)

// EncodedPolicy says how to treat requests with a Content-Encoding.
type EncodedPolicy uint8

const (
	// EncodedRefuse answers 415: the same body encoded twice need not be the same
	// bytes, and a small body may decode to a huge one.
	EncodedRefuse EncodedPolicy = iota
	// EncodedDecodeGzip decodes gzip under the request's size limit, for the fingerprint
	// and for the handler; other encodings are refused.
	EncodedDecodeGzip
)

// StreamPolicy says what Flush does on a guarded route.
type StreamPolicy uint8

const (
	// StreamHold keeps the response until it is durable; Flush does nothing.
	StreamHold StreamPolicy = iota
	// StreamThrough stores the outcome without a body at the first Flush and streams
	// from there on. A retry learns that the request was executed.
	StreamThrough
)

// A Secret keys fingerprints. ID is 1 to 15 and is stored with each record.
type Secret struct {
	ID  uint8
	Key []byte
}

// notExecutedByDefault are the statuses that mean "not executed" unless
// [Options.NotExecuted] says otherwise. A later attempt of the same request may overcome
// each of them.
var notExecutedByDefault = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
	http.StatusTooEarly, http.StatusTooManyRequests,
}

// notExecutedCaveat says what a guard takes a handler's word for, if its effects are
// not protected otherwise.
func (o *Options) notExecutedCaveat(e retrysafe.Effects) string {
	if e.Repeatable() || len(o.NotExecuted) == 0 {
		return ""
	}
	return fmt.Sprintf("the statuses %v of the handler are taken as proof that an unprotected operation was not executed, and a retry runs it; change Options.NotExecuted if a handler answers one of them after it has done something", o.NotExecuted)
}

const defaultBody = 1 << 20

// replayed are the response headers that are stored by default.
var replayed = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Content-Location", "Content-Range",
	"Location", "Link", "ETag", "Last-Modified", "Retry-After", "Deprecation", "Sunset", "Allow",
	"X-Content-Type-Options", "Content-Security-Policy", // a replay needs the same protection; http.Error sets the first
}

// complete checks o and fills in its defaults.
func (o *Options) complete() error {
	if o.Profile == nil {
		o.Profile = IETF
	}
	if o.Header == "" {
		o.Header = "Idempotency-Key"
	}
	o.Header = http.CanonicalHeaderKey(o.Header)
	if len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	o.Methods = slices.Clone(o.Methods)
	for i, m := range o.Methods {
		o.Methods[i] = strings.ToUpper(m) // "post" would match no request
	}
	if o.NotExecuted == nil {
		o.NotExecuted = notExecutedByDefault
	}
	for _, status := range o.NotExecuted {
		if status < 400 || status > 599 {
			return fmt.Errorf("httpkey: NotExecuted: %d is no status of an error, 400 to 599", status)
		}
	}
	if err := o.checkTx(); err != nil {
		return fmt.Errorf("httpkey: option Tx: %w", err)
	}
	o.MinKeyLength = cmp.Or(o.MinKeyLength, 16)
	o.MaxRequest = cmp.Or(o.MaxRequest, defaultBody)
	o.MaxResponse = cmp.Or(o.MaxResponse, defaultBody)
	if o.ProblemBase == "" {
		o.ProblemBase = problemPages
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Profile.Mismatch < 400 || o.Profile.Mismatch > 499 || o.Profile.Envelope > StripeJSON:
		return errors.New("httpkey: Profile: Mismatch is not a 4xx status, or Envelope none of its constants")
	case o.Profile.Gone != 0 && o.Profile.Gone != http.StatusGone && o.Profile.Gone != http.StatusNotFound:
		return errors.New("httpkey: Profile: Gone is neither 410 nor 404")
	case o.MaxRequest < 0 || o.MaxResponse < 0 || o.MinKeyLength < 0:
		return errors.New("httpkey: a limit is negative")
	case o.ShortKeys > StrictnessIgnore || o.PersonalData > StrictnessIgnore || o.Encoded > EncodedDecodeGzip || o.Stream > StreamThrough:
		return errors.New("httpkey: an option holds a value that is none of its constants")
	}
	for _, name := range o.ReplayHeaders {
		if headerkind.IsPerExchange(http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("httpkey: ReplayHeaders: %s belongs to one exchange and is never stored", name)
		}
	}
	if err := o.checkAsync(); err != nil {
		return err
	}
	ids := map[uint8]bool{}
	for _, s := range o.Secrets {
		switch {
		case s.ID < 1 || s.ID > 15:
			return fmt.Errorf("httpkey: Secrets: ID %d is not 1 to 15", s.ID)
		case ids[s.ID]:
			return fmt.Errorf("httpkey: Secrets: ID %d is there twice", s.ID)
		case len(s.Key) < 16:
			return fmt.Errorf("httpkey: Secrets: key %d is under 16 bytes", s.ID)
		}
		ids[s.ID] = true
	}
	return o.Limits.check()
}
