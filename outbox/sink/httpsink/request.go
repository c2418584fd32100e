package httpsink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/webhook"
)

// keyHeader carries the message's key.
const keyHeader = "Idempotency-Key"

// reserved are headers that a message cannot set, beside those of a connection: they
// frame the request, or authenticate the sender.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Expect": true, keyHeader: true,
	"Webhook-Id": true, "Webhook-Timestamp": true, "Webhook-Signature": true,
}

// request returns the request that carries d. A fault of the message is permanent, a
// fault of its endpoint is not.
func request(ctx context.Context, d *outbox.Delivery, e *Endpoint, to *url.URL, now time.Time) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, cmp.Or(e.Method, http.MethodPost), to.String(), bytes.NewReader(d.Payload))
	if err != nil {
		return nil, fmt.Errorf("%w: its method %q is not valid", ErrEndpoint, e.Method)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Header)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case reserved[canonical], headerkind.IsHop(canonical):
			return nil, outbox.Permanent(fmt.Errorf("httpsink: a message cannot set the header %s", canonical))
		case !token(name) || !text(d.Header[name]):
			return nil, outbox.Permanent(fmt.Errorf("httpsink: the header %q of the message cannot be sent", name))
		}
		r.Header.Set(name, d.Header[name])
	}
	for name, values := range e.Header {
		r.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	key, err := keyed(d.Key, e.Quoted)
	if err != nil {
		return nil, err
	}
	r.Header.Set(keyHeader, key)
	return r, sign(r, d, e.Secrets, now)
}

// keyed returns the key as the header carries it.
func keyed(key string, quoted bool) (string, error) {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] >= 0x7f {
			return "", outbox.Permanent(fmt.Errorf("httpsink: the key has a byte %#x, which a header cannot carry", key[i]))
		}
	}
	if quoted {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`, nil
	}
	return key, nil
}

// sign adds the headers of Standard Webhooks, if there are secrets.
func sign(r *http.Request, d *outbox.Delivery, secrets []webhook.Secret, now time.Time) error {
	if len(secrets) == 0 {
		return nil
	}
	id := webhookID(d.Key)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		var err error
		if signatures[i], err = webhook.Sign(secret, id, now, d.Payload); err != nil {
			return fmt.Errorf("%w: %w", ErrEndpoint, err)
		}
	}
	r.Header.Set(webhook.HeaderID, id)
	r.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(webhook.HeaderSignature, strings.Join(signatures, " "))
	return nil
}

// webhookID returns the key, or its digest if it has a full stop, which an id cannot have.
func webhookID(key string) string {
	if !strings.Contains(key, ".") {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "msg_" + hex.EncodeToString(sum[:16])
}

// token reports whether s can be the name of a header.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// text reports whether s can be the value of a header.
func text(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
