package httpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/outbox"
)

// ErrNotSent says that there was no connection to the endpoint, so that it cannot have
// seen the message. Any other error leaves open whether it has.
var ErrNotSent = neverresend.ErrNotSent

// Options are the options of a [Sink]. Zero values are the defaults.
type Options struct {
	// Allow are addresses that may be dialled although they are not public.
	Allow []netip.Prefix
	// PlainHTTP allows endpoints without TLS.
	PlainHTTP bool
	// TLS is for endpoints with certificate authorities of their own.
	TLS *tls.Config
	// Timeout bounds one request. Default 10 s.
	Timeout time.Duration
	// PerHost is how many requests may be under way to one host. Default 8.
	PerHost int
	// MaxBody is how many bytes of a response's body are read. Default 64 KiB.
	MaxBody int64
	// Read, if not nil, sees each response and may change the receipt: set ProviderRef
	// from the response, or make a declined payment, which is not a success but final,
	// the answer ([Response.Answer]). It may be called concurrently.
	Read func(d *outbox.Delivery, r *Response, receipt *outbox.Receipt)
}

// A Sink delivers messages over HTTP.
type Sink struct {
	route     Route
	opts      Options
	hosts     hosts
	transport *http.Transport
	once      http.RoundTripper
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink that delivers each message to the endpoint that route returns. Opts
// may be nil.
func New(route Route, opts *Options) (*Sink, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Timeout, o.PerHost, o.MaxBody = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.PerHost, 8), cmp.Or(o.MaxBody, 64<<10)
	switch {
	case route == nil:
		return nil, errors.New("httpsink: a sink needs a route")
	case o.Timeout < 0 || o.PerHost < 0 || o.MaxBody < 0:
		return nil, errors.New("httpsink: an option is negative")
	}
	transport := &http.Transport{
		DialContext:            dialer(o.Allow).DialContext, // and no Proxy, not even from the environment
		TLSClientConfig:        o.TLS.Clone(),               // net/http writes to it
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the limit of the body holds for what is read
		MaxIdleConnsPerHost:    o.PerHost,
		MaxIdleConns:           256,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &Sink{
		route: route, opts: o, hosts: hosts{limit: o.PerHost, slots: map[string]*hostSlots{}},
		transport: transport, once: neverresend.Transport(transport),
	}, nil
}

// Deliver implements [outbox.Sink]. It sends all messages of a batch at once, as far as
// [Options.PerHost] allows.
func (s *Sink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	var all sync.WaitGroup
	for i := range batch {
		all.Go(func() { receipts[i] = s.deliver(ctx, &batch[i]) })
	}
	all.Wait()
	return receipts
}

// Close closes idle connections.
func (s *Sink) Close() { s.transport.CloseIdleConnections() }

func (s *Sink) deliver(ctx context.Context, d *outbox.Delivery) (r outbox.Receipt) {
	defer func() {
		if p := recover(); p != nil { // of Route or Read; the other messages are not affected
			r.Err = fmt.Errorf("httpsink: panic: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	endpoint, err := s.route(ctx, d)
	if err != nil {
		return outbox.Receipt{Err: err}
	}
	to, err := target(endpoint.URL, s.opts.PlainHTTP)
	if err != nil {
		return outbox.Receipt{Err: outbox.Permanent(err)}
	}
	release, err := s.hosts.acquire(ctx, to.Host)
	if err != nil {
		return outbox.Receipt{Err: fmt.Errorf("httpsink: %w: wait for its host: %w", ErrNotSent, err)}
	}
	defer release()
	request, err := request(ctx, d, &endpoint, to, time.Now())
	if err != nil {
		return outbox.Receipt{Err: err}
	}
	response, err := s.once.RoundTrip(request)
	switch {
	case errors.Is(err, ErrAddress):
		return outbox.Receipt{Err: outbox.Permanent(fmt.Errorf("httpsink: %w", err))}
	case err != nil:
		return outbox.Receipt{Err: fmt.Errorf("httpsink: %w", err)}
	}
	defer response.Body.Close()
	got := read(response, s.opts.MaxBody)
	r = receipt(d, got, time.Now())
	if s.opts.Read != nil {
		s.opts.Read(d, got, &r)
	}
	return r
}
