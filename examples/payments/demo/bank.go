package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/retrysafe/retrysafe"
)

// bank is the provider as the API calls it in line.
type bank struct {
	url  string
	http *http.Client
}

// newBank returns a client that sends each request once: each connection carries one
// request, and redirects are not followed.
func newBank(url string) *bank {
	return &bank{url, &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       providerMay,
	}}
}

// toProvider is the request to charge an order. The provider's ledger finds the charge
// by merchant and reference, which are the caller's tenant and key.
func (o order) toProvider(under retrysafe.Ref) []byte {
	body, _ := json.Marshal(wanted{o, under.Scope, under.Key}) // plain values always marshal
	return body
}

// charge charges without a key. A declined charge has no ID. If the outcome is unknown,
// charge returns an error.
func (b *bank) charge(ctx context.Context, body []byte) (made charged, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return made, retrysafe.NotExecuted(err)
	}
	r.Header.Set("Content-Type", "application/json")
	status, err := b.do(r, &made)
	switch {
	case err != nil:
		return charged{}, err
	case status == http.StatusPaymentRequired:
		return charged{}, nil
	case status != http.StatusCreated || made.ID == "":
		return charged{}, fmt.Errorf("the provider answered %d", status)
	}
	return made, nil
}

// ledger lists what was charged for one of our keys.
func (b *bank) ledger(ctx context.Context, of retrysafe.Ref) (rows []charged, err error) {
	query := url.Values{"key": {of.Key}, "merchant": {of.Scope}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/ledger?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	status, err := b.do(r, &rows)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the provider answered %d", status)
	}
	return rows, err
}

// do sends r and decodes the answer into v, if it is a success.
func (b *bank) do(r *http.Request, v any) (status int, err error) {
	response, err := b.http.Do(r)
	if err != nil {
		if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
			err = retrysafe.NotExecuted(err) // no connection was made, so nothing was sent
		}
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.NewDecoder(io.LimitReader(response.Body, maxBody)).Decode(v)
}
