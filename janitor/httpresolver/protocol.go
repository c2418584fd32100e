package httpresolver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/janitor"
)

// A question is what the endpoint is sent: all names by which the operation may be
// known. If scope or key are not text, their bytes are beside them.
type question struct {
	Scope         string    `json:"scope"`
	Key           string    `json:"key,omitempty"`
	KeyHash       string    `json:"key_hash"`
	ScopeBytes    []byte    `json:"scope_base64,omitempty"`
	KeyBytes      []byte    `json:"key_base64,omitempty"`
	Operation     string    `json:"operation"`
	DownstreamKey string    `json:"downstream_key"`
	ProviderRef   string    `json:"provider_ref,omitempty"`
	Attempt       int       `json:"attempt"`
	Effects       string    `json:"effects"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
	Tries         int       `json:"tries"`
	Reason        string    `json:"reason,omitempty"`
}

// New returns a resolver that asks the endpoint at address, which is the user's: it looks
// the operation up at the provider, and replies with a verdict. Opts may be nil.
//
// Only a well-formed reply with status 200 is evidence: an endpoint that does not exist
// must not pass for a provider that knows nothing of the operation.
func New(address string, opts *Options) (*Resolver, error) {
	if opts == nil {
		opts = &Options{}
	}
	host, err := checkURL(address, opts.PlainHTTP)
	if err != nil {
		return nil, err
	}
	r := newResolver(host, opts)
	r.prepare = func(ctx context.Context, n *names) (*http.Request, string, bool, error) {
		body, err := json.Marshal(n.question())
		if err != nil {
			return nil, "", false, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return nil, "", false, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json")
		return req, "", true, nil
	}
	r.understand = func(_ *names, got *reply) (retrysafe.Evidence, error) {
		if got.status != http.StatusOK {
			return retrysafe.Evidence{}, fmt.Errorf("the resolver replied with status %d; a verdict comes with 200", got.status)
		}
		return parseVerdict(got.body)
	}
	return r, nil
}

// question returns the question about a record.
func (n *names) question() question {
	rec := n.rec
	q := question{
		Scope: rec.Scope, Key: rec.Key, KeyHash: retrysafe.HashKey(rec.Key),
		Operation: rec.Operation, ProviderRef: rec.ProviderRef, Attempt: rec.Attempt,
		DownstreamKey: n.downstreamKey(), Effects: rec.Effects.String(),
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, Tries: rec.Inquiry.Tries, Reason: rec.Reason,
	}
	if !utf8.ValidString(rec.Scope) {
		q.ScopeBytes = []byte(rec.Scope)
	}
	if !utf8.ValidString(rec.Key) {
		q.KeyBytes = []byte(rec.Key)
	}
	return q
}

// A verdict is what the endpoint answers.
type verdict struct {
	Verdict     string         `json:"verdict"`
	Evidence    string         `json:"evidence"`
	ProviderRef string         `json:"provider_ref"`
	Answer      *verdictAnswer `json:"answer"`
}

// A verdictAnswer is what retries of the operation get. The body is text, or bytes in
// base64.
type verdictAnswer struct {
	Status    int                 `json:"status"`
	Headers   map[string][]string `json:"headers"`
	Body      string              `json:"body"`
	BodyBytes []byte              `json:"body_base64"`
}

// parseVerdict returns the evidence of a reply. It is strict: a reply that is only almost
// well-formed could make an operation run again.
func parseVerdict(text []byte) (out retrysafe.Evidence, err error) {
	var v verdict
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return out, fmt.Errorf("the resolver's reply cannot be read: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return out, errors.New("the resolver's reply cannot be read: something follows the object")
	}
	evidence := cmp.Or(v.Evidence, "the resolver said so")
	answered := v.Verdict == "happened" || v.Verdict == "declined"
	switch {
	case answered && v.Answer == nil:
		return out, fmt.Errorf("the resolver says %s, but not which answer retries get", v.Verdict)
	case !answered && v.Answer != nil:
		return out, fmt.Errorf("the resolver says %q, and an answer: only happened and declined have one", v.Verdict)
	}
	var result retrysafe.Result
	if answered {
		if result, err = v.Answer.result(); err != nil {
			return out, fmt.Errorf("the resolver's answer for retries: %w", err)
		}
	}
	switch v.Verdict {
	case "happened":
		out = janitor.Happened(result, evidence)
	case "declined":
		out = janitor.Declined(result, evidence)
	case "not_happened":
		out = janitor.NotHappened(evidence)
	case "tombstoned":
		out = janitor.Tombstoned(evidence)
	case "still_unknown":
		out = janitor.StillUnknown(evidence)
	default:
		return out, fmt.Errorf("the resolver says %q, which is none of happened, declined, not_happened, tombstoned, still_unknown", v.Verdict)
	}
	out.ProviderRef = v.ProviderRef
	return out, nil
}

func (a *verdictAnswer) result() (r retrysafe.Result, err error) {
	switch {
	case a.Status < 200 || a.Status > 599:
		return r, fmt.Errorf("its status %d is not between 200 and 599", a.Status)
	case a.Body != "" && a.BodyBytes != nil:
		return r, errors.New("it has both body and body_base64")
	}
	r = retrysafe.Result{Status: a.Status, Body: []byte(a.Body)}
	if a.BodyBytes != nil {
		r.Body = a.BodyBytes
	}
	for name, values := range a.Headers {
		name = http.CanonicalHeaderKey(name)
		for _, value := range values {
			if err := headerkind.CheckReplayed(name, value); err != nil {
				return r, fmt.Errorf("header %s: %w", strings.TrimSpace(name), err)
			}
		}
		if r.Header == nil {
			r.Header = map[string][]string{}
		}
		r.Header[name] = append(r.Header[name], values...)
	}
	return r, nil
}
