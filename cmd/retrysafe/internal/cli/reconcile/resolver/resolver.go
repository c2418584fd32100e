// Package resolver asks an HTTP endpoint what became of operations whose outcome is
// unknown. The endpoint is the user's: it looks the operation up at the provider.
// docs/recovery.md has the protocol.
package resolver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// Why [New] refuses a URL.
var (
	// ErrURL says that it is not a URL of http or https.
	ErrURL = errors.New("it is not a URL of http or https")
	// ErrPassword says that it contains a password. A token is given by [Options].
	ErrPassword = errors.New("it contains a password")
	// ErrPlainHTTP says that it is not https. An attacker on the network could answer in
	// place of the endpoint, and make an operation run twice.
	ErrPlainHTTP = errors.New("it is not https")
)

// Options are what [New] may be given besides the URL. Nil and zero values are the
// defaults.
type Options struct {
	// Token is a bearer token for the endpoint.
	Token string
	// Namespace is [retrysafe.Options.Namespace] of the engine, and Call the name of the
	// outside call. The downstream key in a question is derived from them.
	Namespace, Call string
	// PlainHTTP permits http to other machines. The network has to be trusted then.
	PlainHTTP bool
}

// A Resolver asks an HTTP endpoint. It implements [janitor.Resolver] and is safe for
// concurrent use.
type Resolver struct {
	url, host string
	opts      Options
	client    *http.Client
}

var _ janitor.Resolver = (*Resolver)(nil)

// New returns a resolver that asks the endpoint at address. Opts may be nil.
func New(address string, opts *Options) (*Resolver, error) {
	if opts == nil {
		opts = &Options{}
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, ErrURL
	case u.User != nil:
		return nil, ErrPassword
	case u.Scheme == "http" && !opts.PlainHTTP && !loopback(u.Hostname()):
		return nil, ErrPlainHTTP
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // a proxy could answer in its place
	return &Resolver{url: address, host: u.Host, opts: *opts, client: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Host returns the host of the endpoint, for notes.
func (r *Resolver) Host() string { return r.host }

// Resolve implements [janitor.Resolver]. Only a well-formed reply with status 200 is
// evidence: an endpoint that does not exist must not pass for a provider that knows
// nothing of the operation.
func (r *Resolver) Resolve(ctx context.Context, rec retrysafe.Record) (retrysafe.Evidence, error) {
	body, err := json.Marshal(r.question(&rec))
	if err != nil {
		return retrysafe.Evidence{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return retrysafe.Evidence{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if r.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.opts.Token)
	}
	res, err := r.client.Do(req)
	if err != nil {
		return retrysafe.Evidence{}, withoutURL(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	switch {
	case err != nil:
		return retrysafe.Evidence{}, fmt.Errorf("read the resolver's reply: %w", err)
	case len(text) > maxReply:
		return retrysafe.Evidence{}, fmt.Errorf("the resolver's reply is over %d bytes", maxReply)
	case res.StatusCode != http.StatusOK:
		return retrysafe.Evidence{}, fmt.Errorf("the resolver replied with status %d; a verdict comes with 200", res.StatusCode)
	}
	return parseReply(text)
}

// withoutURL returns an error without the URL, which may contain a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e
	}
	return fmt.Errorf("ask the resolver: %w", err)
}
