package httpsink

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/webhook"
)

// An Endpoint is where a message goes.
type Endpoint struct {
	// URL is absolute, https, and has no credentials.
	URL string
	// Method is the request's method. Default POST.
	Method string
	// Header is sent with each message. It replaces headers of the message.
	Header http.Header
	// Secrets sign messages as Standard Webhooks prescribes: the current secret, and
	// during a rotation also the next. Without secrets messages are not signed.
	Secrets []webhook.Secret
	// Quoted sends the key as a structured-field string, in double quotes, as the IETF
	// draft prescribes. Most APIs expect it without quotes.
	Quoted bool
}

// A Route returns the endpoint of a message. An error fails this try; with
// [outbox.Permanent] the message becomes a dead letter.
type Route func(ctx context.Context, d *outbox.Delivery) (Endpoint, error)

// To sends all messages to one endpoint.
func To(e Endpoint) Route {
	return func(context.Context, *outbox.Delivery) (Endpoint, error) { return e, nil }
}

// Topics sends each topic to an endpoint of its own. Messages of a topic without an
// endpoint fail, and are tried again.
func Topics(endpoints map[string]Endpoint) Route {
	return func(_ context.Context, d *outbox.Delivery) (Endpoint, error) {
		e, ok := endpoints[d.Topic]
		if !ok {
			return e, fmt.Errorf("httpsink: topic %q has no endpoint", d.Topic)
		}
		return e, nil
	}
}

// ErrEndpoint says that a message cannot go to the URL that it was routed to.
var ErrEndpoint = errors.New("httpsink: endpoint refused")

// target parses an endpoint's URL. Errors do not quote it, because it may have
// credentials.
func target(raw string, plain bool) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: its URL cannot be read", ErrEndpoint)
	case u.Scheme != "https" && (!plain || u.Scheme != "http"):
		return nil, fmt.Errorf("%w: its scheme is %q; https is needed", ErrEndpoint, u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%w: its URL has no host", ErrEndpoint)
	case u.User != nil:
		return nil, fmt.Errorf("%w: its URL has credentials, which end up in logs; put them into a header", ErrEndpoint)
	}
	return u, nil
}
