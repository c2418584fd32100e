// Package httpresolver asks over HTTP what became of operations whose outcome is unknown.
//
// [New] asks an endpoint of the user's own, which gets a question and replies with a
// verdict. [NewLookup] asks the API of a provider as it is: a URL with places for the names
// of the operation, and rules that say what the replies mean. docs/recovery.md describes
// both.
//
//	resolver, err := httpresolver.NewLookup(httpresolver.Lookup{
//		URL: "https://api.example.com/charges?reference={key}",
//		Rules: []httpresolver.Rule{
//			{Status: []string{"200"}, When: map[string][]string{"/data/0/status": {"paid"}}, Then: "happened",
//				Answer: &httpresolver.Answer{Status: 201, BodyFrom: "/data/0"}},
//			{Status: []string{"200"}, Absent: []string{"/data/0"}, Then: "not_happened"},
//		},
//	}, &httpresolver.Options{Token: token, Deadline: time.Hour})
//
// A resolver sends each question once, follows no redirect and uses no proxy. A reply that
// is not understood is an error, never a guess.
package httpresolver

import (
	"cmp"
	"context"
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
	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/janitor"
)

// Why [New] and [NewLookup] refuse a URL.
var (
	// ErrURL says that it is not a URL of http or https.
	ErrURL = errors.New("it is not a URL of http or https")
	// ErrPassword says that it contains a password. A token is given by [Options].
	ErrPassword = errors.New("it contains a password")
	// ErrPlainHTTP says that it is not https. An attacker on the network could answer in
	// place of the endpoint, and make an operation run twice.
	ErrPlainHTTP = errors.New("it is not https")
)

// Options are what [New] and [NewLookup] may be given. Nil and zero values are the
// defaults.
type Options struct {
	// Name is the resolver's name in the records' notes. Default: the host of its URL.
	Name string
	// Token is a bearer token for the endpoint.
	Token string
	// Namespace is [retrysafe.Options.Namespace] of the engine, and Call the name of the
	// outside call. The downstream key in a question is derived from them.
	Namespace, Call string
	// PlainHTTP permits http to other machines. The network has to be trusted then.
	PlainHTTP bool
	// Deadline is how long an outcome must have been unknown before "it did not happen"
	// counts. Then it is a proof, [retrysafe.ProofWaited], and an operation with
	// unprotected effects may run again too: set it to more than the longest time that a
	// request of an attempt can be on its way, and an effect can take to show in the
	// replies. Zero: "it did not happen" is no proof, see [janitor.NotHappened].
	Deadline time.Duration
	// Body returns the body of the operation's request, for {request:/pointer}, and
	// whether the record has it. Default: no record has it.
	Body func(retrysafe.Record) ([]byte, bool)
	// Tracer names the span of a question to the endpoint, in the header traceparent: that
	// of the reconciler, which has the same tracer. Nil: no such header is sent.
	Tracer retrysafe.Tracer
}

// A Resolver asks over HTTP. It implements [janitor.Resolver] and is safe for concurrent
// use.
type Resolver struct {
	host   string
	opts   Options
	client *http.Client
	// prepare returns the request that asks about a record. If ok is false, the record
	// lacks what the request needs, and why says what.
	prepare func(ctx context.Context, n *names) (req *http.Request, why string, ok bool, err error)
	// understand returns what a reply says.
	understand func(n *names, r *reply) (retrysafe.Evidence, error)
}

var _ janitor.Resolver = (*Resolver)(nil)

// A reply is what came back, read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// newResolver returns a resolver of a URL that has been checked.
func newResolver(host string, opts *Options) *Resolver {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // a proxy could answer in its place
	t.MaxIdleConnsPerHost = 32
	r := &Resolver{host: host, opts: *opts, client: &http.Client{
		Transport:     neverresend.Transport(t),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return r
}

// checkURL returns the host of a URL that may be asked.
func checkURL(address string, plainHTTP bool) (host string, err error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", ErrURL
	case u.User != nil:
		return "", ErrPassword
	case u.Scheme == "http" && !plainHTTP && !loopback(u.Hostname()):
		return "", ErrPlainHTTP
	}
	return u.Host, nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Resolve implements [janitor.Resolver].
func (r *Resolver) Resolve(ctx context.Context, rec retrysafe.Record) (retrysafe.Evidence, error) {
	by := retrysafe.Evidence{By: "resolver " + cmp.Or(r.opts.Name, r.host)}
	n := &names{rec: &rec, opts: &r.opts}
	req, why, ok, err := r.prepare(ctx, n)
	if err != nil {
		return by, err
	}
	if !ok {
		v := janitor.StillUnknown(why)
		v.By = by.By
		return v, nil
	}
	if r.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.opts.Token)
	}
	r.trace(ctx, req)
	got, err := r.send(req)
	if err != nil {
		return by, err
	}
	v, err := r.understand(n, got)
	if err != nil {
		return by, err
	}
	v.By = by.By
	return r.inTime(&rec, v), nil
}

// trace names the span that ctx carries in the headers of a request.
func (r *Resolver) trace(ctx context.Context, req *http.Request) {
	if r.opts.Tracer == nil {
		return
	}
	header := make(map[string]string, 2)
	r.opts.Tracer.Inject(ctx, header)
	for name, value := range header {
		req.Header.Set(name, value)
	}
}

// maxReply bounds how much of a reply is read.
const maxReply = 16 << 20

// send sends the request and reads the reply.
func (r *Resolver) send(req *http.Request) (*reply, error) {
	res, err := r.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the resolver's reply: %w", err)
	case len(text) > maxReply:
		return nil, fmt.Errorf("the resolver's reply is over %d bytes", maxReply)
	}
	return &reply{res.StatusCode, res.Header, text}, nil
}

// inTime returns v. If v says without a proof that the operation did not happen, and there
// is a deadline, it is a proof after the deadline and "still unknown" before.
func (r *Resolver) inTime(rec *retrysafe.Record, v retrysafe.Evidence) retrysafe.Evidence {
	if v.Finding != retrysafe.FindingNotHappened || v.Proof != retrysafe.ProofNone || r.opts.Deadline <= 0 {
		return v
	}
	if rec.ReadAt.Sub(rec.UnknownSince()) >= r.opts.Deadline {
		v.Proof = retrysafe.ProofWaited
		return v
	}
	v.Finding = retrysafe.FindingUnknown
	v.Text = strings.TrimSpace(fmt.Sprintf("%s (not there; that counts when the outcome has been unknown for %v)", v.Text, r.opts.Deadline))
	return v
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
