package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// newOperation reads a request. It returns the operation and the headers that are not for a
// journal.
func (c *Client) newOperation(r *http.Request) (*Operation, http.Header, error) {
	body, err := c.readBody(r)
	if err != nil {
		return nil, nil, err
	}
	if r.URL == nil || r.URL.Host == "" {
		return nil, nil, errors.New("client: the request's URL has no host; nothing was sent")
	}
	now := time.Now()
	op := &Operation{Method: r.Method, Header: http.Header{}, Body: body, Profile: c.o.Profile, Begun: now.UTC()}
	secret := http.Header{}
	for name, values := range r.Header {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if c.private(name) {
			secret[name] = append(secret[name], values...)
		} else {
			op.Header[name] = append(op.Header[name], values...)
		}
	}
	target := *r.URL
	if user := target.User; user != nil && len(secret["Authorization"]) == 0 {
		password, _ := user.Password()
		(&http.Request{Header: secret}).SetBasicAuth(user.Username(), password)
	}
	target.User = nil
	op.URL = target.String()
	if r.Host != "" && r.Host != target.Host {
		op.Host = r.Host
	}
	if err := c.setKey(op, r, now); err != nil {
		return nil, nil, err
	}
	if op.ID = operationID(r.Context()); op.ID == "" {
		op.ID = op.Key
	}
	return op, secret, nil
}

// setKey gives the operation its key: the request's own, that of the request that was
// redirected to here, or a new one.
func (c *Client) setKey(op *Operation, r *http.Request, now time.Time) error {
	lines := op.Header[c.o.Header]
	if len(lines) == 0 && r.Response != nil && r.Response.Request != nil {
		lines = r.Response.Request.Header[c.o.Header]
	}
	switch {
	case len(lines) > 1:
		return fmt.Errorf("client: the request has %d %s headers; nothing was sent; set one, or none to get a new key", len(lines), c.o.Header)
	case len(lines) == 1 && lines[0] == "":
		return fmt.Errorf("client: the request has an empty %s; nothing was sent; set a random value, or no header to get a new key", c.o.Header)
	case len(lines) == 1:
		op.Key = lines[0]
	case op.Profile == IETF:
		op.Key = `"` + newKey(now) + `"`
	default:
		op.Key = newKey(now)
	}
	op.Header[c.o.Header] = []string{op.Key}
	if op.Profile == IETF && len(op.Header[firstSent]) == 0 {
		op.Header[firstSent] = []string{now.UTC().Format(http.TimeFormat)}
	}
	return nil
}

// firstSent tells an API when the first attempt was made, so that it can refuse a retry whose
// key it may have forgotten.
const firstSent = "Idempotency-First-Sent"

// readBody reads and closes the body, which is sent from memory on each attempt.
func (c *Client) readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, c.o.MaxBody+1))
	if closed := r.Body.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: read the request's body: %w; nothing was sent", err)
	case int64(len(body)) > c.o.MaxBody:
		return nil, fmt.Errorf("client: the request's body is larger than %d bytes; nothing was sent; raise Options.MaxBody", c.o.MaxBody)
	}
	return body, nil
}

// private reports whether a header is not for a journal.
func (c *Client) private(name string) bool {
	if name == c.o.Header {
		return false
	}
	lower := strings.ToLower(name)
	for _, mark := range []string{"authorization", "cookie", "token", "secret", "password", "passwd", "api-key", "apikey", "signature", "credential", "session"} {
		if strings.Contains(lower, mark) {
			return true
		}
	}
	return slices.ContainsFunc(c.o.Private, func(own string) bool { return strings.EqualFold(own, name) })
}
