package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// resolver asks an HTTP endpoint of the user's what became of operations.
// docs/recovery.md has the protocol.
type resolver struct {
	url, token string
	// namespace and call are what downstream keys are made of.
	namespace, call string
	http            *http.Client
}

// inquiry is what the endpoint is asked.
type inquiry struct {
	refJSON
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

// verdict is what it answers.
type verdict struct {
	Verdict     string       `json:"verdict"`
	Evidence    string       `json:"evidence"`
	ProviderRef string       `json:"provider_ref"`
	Answer      *givenAnswer `json:"answer"`
}

// givenAnswer is the answer that retries get. The body is text, or bytes in base64.
type givenAnswer struct {
	Status    int                 `json:"status"`
	Headers   map[string][]string `json:"headers"`
	Body      string              `json:"body"`
	BodyBytes []byte              `json:"body_base64"`
}

// maxVerdict bounds what is read of an answer.
const maxVerdict = 16 << 20

// newResolver returns a resolver that asks address. Whoever can change what it
// answers can let an operation run twice, so it is asked over TLS, or on this machine.
func newResolver(address string, plainHTTP bool) (*resolver, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, misused("--resolver-url is no URL of http or https")
	case u.User != nil:
		return nil, misused("--resolver-url has a password in it").hinted("give a token with --resolver-token-file")
	case u.Scheme == "http" && !plainHTTP && !loopback(u.Hostname()):
		return nil, misused("--resolver-url is not https: whoever is on the way could answer instead, and let an operation run twice").hinted("--plain-http trusts the network")
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // it is asked itself
	return &resolver{url: address, http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// host is how notes name who was asked.
func (r *resolver) host() string {
	u, err := url.Parse(r.url)
	if err != nil {
		return ""
	}
	return u.Host
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Resolve implements [janitor.Resolver]. Only a well-formed verdict is one: an
// endpoint that is not there must not pass for a provider that knows nothing.
func (r *resolver) Resolve(ctx context.Context, rec retrysafe.Record) (retrysafe.Evidence, error) {
	body, err := json.Marshal(r.ask(&rec))
	if err != nil {
		return retrysafe.Evidence{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return retrysafe.Evidence{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := r.http.Do(req)
	if err != nil {
		return retrysafe.Evidence{}, bare(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxVerdict+1))
	switch {
	case err != nil:
		return retrysafe.Evidence{}, fmt.Errorf("read the resolver's answer: %w", err)
	case len(text) > maxVerdict:
		return retrysafe.Evidence{}, fmt.Errorf("the resolver's answer is over %d bytes", maxVerdict)
	case res.StatusCode != http.StatusOK:
		return retrysafe.Evidence{}, fmt.Errorf("the resolver answered %d; a verdict comes with 200", res.StatusCode)
	}
	return parseVerdict(text)
}

// bare returns an error without the URL, which may carry a secret.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e
	}
	return fmt.Errorf("ask the resolver: %w", err)
}

// ask says which operation is meant, by all its names.
func (r *resolver) ask(rec *retrysafe.Record) inquiry {
	call := r.call
	steps, _ := rec.Checkpoint.Steps() // a checkpoint of another kind has none
	if n := len(steps); n > 0 && steps[n-1].Open {
		call = steps[n-1].Name
	}
	return inquiry{
		refJSON: newRefJSON(rec.Ref, false), Operation: rec.Operation, ProviderRef: rec.ProviderRef, Attempt: rec.Attempt,
		DownstreamKey: retrysafe.DownstreamKey(r.namespace, rec.Ref, call), Effects: rec.Effects.String(),
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, Tries: rec.Inquiry.Tries, Reason: rec.Reason,
	}
}

// parseVerdict reads a verdict, strictly: what is only almost one could let
// something run again.
func parseVerdict(text []byte) (out retrysafe.Evidence, err error) {
	var v verdict
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return out, fmt.Errorf("the resolver's verdict cannot be read: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return out, errors.New("the resolver's verdict cannot be read: something follows the object")
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

func (a *givenAnswer) result() (r retrysafe.Result, err error) {
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
			if why := badHeader(name, value); why != "" {
				return r, fmt.Errorf("header %s: %s", strings.TrimSpace(name), why)
			}
		}
		if r.Header == nil {
			r.Header = map[string][]string{}
		}
		r.Header[name] = append(r.Header[name], values...)
	}
	return r, nil
}
