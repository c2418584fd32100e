package effect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// A Client calls a provider in another process. HTTP sends each request once: none has
// a header that [http.Transport] takes for leave to send it again.
type Client struct {
	URL  string
	HTTP *http.Client
}

// Charge sends an order, and returns the provider's ID of the effect.
func (c Client) Charge(ctx context.Context, o Order) (id string, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	return c.send(ctx, http.MethodPost, "/charges", body)
}

// Find returns the ID of the first effect of a job, or nothing.
func (c Client) Find(ctx context.Context, job string) (id string, err error) {
	return c.send(ctx, http.MethodGet, "/charges?job="+url.QueryEscape(job), nil)
}

// Hold waits at the gate of a job, if there is one.
func (c Client) Hold(ctx context.Context, job string) error {
	_, err := c.send(ctx, http.MethodPost, "/gate?job="+url.QueryEscape(job), nil)
	return err
}

func (c Client) send(ctx context.Context, method, path string, body []byte) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := c.HTTP.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // it was read whole
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the provider answers %s: %s", res.Status, text)
	}
	return string(text), err
}
