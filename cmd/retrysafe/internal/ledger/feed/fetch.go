package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// fetchTimeout bounds how long a list may take to arrive, headTimeout how long its first bytes may.
const (
	fetchTimeout = time.Hour
	headTimeout  = 2 * time.Minute
)

// get returns the list of a period that a URL answers with. It is asked for when it is read.
func (f *Feed) get(ctx context.Context, p *Period) (List, error) {
	if err := f.checkURL(); err != nil {
		return List{}, err
	}
	address := f.fill(f.URL, p)
	return List{Name: shown(address), source: func(yield func(ledger.Entry, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		if err := f.fetch(ctx, address, yield); err != nil {
			yield(ledger.Entry{}, err)
		}
	}}, nil
}

// fetch asks for a list and yields its rows.
func (f *Feed) fetch(ctx context.Context, address string, yield func(ledger.Entry, error) bool) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errors.New("the URL cannot be used")
	}
	r.Header.Set("Accept", "text/csv, application/x-ndjson, application/jsonl")
	if f.Token != "" {
		r.Header.Set("Authorization", "Bearer "+f.Token)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: headTimeout, TLSHandshakeTimeout: headTimeout, DisableKeepAlives: true,
		DialContext: (&net.Dialer{Timeout: headTimeout}).DialContext,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // it quotes the URL, which may have a secret in its query
		}
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotFound, answer.StatusCode == http.StatusAccepted, answer.StatusCode == http.StatusTooEarly:
		return fmt.Errorf("%w: the answer is %s", ErrNotYet, answer.Status)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("the answer is %s, and a list comes with 200 OK", answer.Status) // a part of a list, or a page to log in on, is none
	case answer.ContentLength > f.maxBytes():
		return fmt.Errorf("%w: it has %d bytes, and %d are allowed", ledger.ErrTooLarge, answer.ContentLength, f.maxBytes())
	}
	format, err := f.formatOf(answer)
	if err != nil {
		return err
	}
	body := &limited{r: answer.Body, left: f.maxBytes()}
	for e, err := range f.rows(body, format) {
		if !yield(e, err) || err != nil {
			return nil
		}
	}
	return nil
}

// formatOf returns the format of an answer by its type.
func (f *Feed) formatOf(answer *http.Response) (string, error) {
	if f.Format != "" {
		return f.Format, nil
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch kind {
	case "text/csv", "application/csv":
		return CSV, nil
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines":
		return JSONL, nil
	}
	return "", fmt.Errorf("its Content-Type %q is none of text/csv, application/x-ndjson, application/jsonl; say which format it is", kind)
}

// limited fails when there is more to read than is allowed, where an [io.LimitedReader] would end as if that were all.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("%w: it has more bytes than are allowed", ledger.ErrTooLarge)
	}
	return n, err
}

// local reports whether a host is this machine.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// shown returns a URL without its query, which may have a secret in it.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the URL"
	}
	u.RawQuery, u.User, u.Fragment = "", nil, ""
	return u.String()
}
