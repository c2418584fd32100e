package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/httpsink"
)

const (
	// horizon is how long a transfer is retried; the provider remembers keys for
	// longer.
	horizon = 20 * time.Hour
	// handedOver is how long the message owns the key: longer than a message exists.
	handedOver = 21 * time.Hour

	transferHeader = "Transfer-Id"
)

// transfer writes a row and a message in one commit, and hands the key over to the
// message. The client gets a 202, also on each retry, until the worker has the
// provider's answer; then it gets that answer. Effectively once: the provider honours
// the message's key.
func (a *api) transfer(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	in, ok := read(w, r)
	if !ok {
		return
	}
	x, ok := execution(ctx, w)
	if !ok {
		return
	}
	tx, err := a.db.begin(ctx)
	if err != nil {
		unavailable(w)
		return
	}
	defer func() { _ = tx.Rollback(ctx) }()
	made := effect{ID: newID("tr"), Kind: transfer, order: in, Status: pending}
	if err := insert(ctx, tx, x.Ref(), &made); err != nil {
		unavailable(w)
		return
	}
	rec, err := x.HandOver(ctx, tx, handedOver)
	if err != nil {
		return // the transaction was rolled back, and the guard answers
	}
	err = tx.Enqueue(ctx, outbox.Message{
		Topic: "charges", Key: x.DownstreamKey("charge"), Payload: in.toProvider(x.Ref()),
		Header: map[string]string{transferHeader: made.ID, "Content-Type": "application/json"}, Settles: &rec,
	})
	if err != nil {
		return // as above
	}
	_ = tx.Commit(ctx) // the guard finds out whether it was committed
	a.wake()
}

// newSink returns the sink that sends transfers to the provider. The provider is on
// this machine, so its address, which is not public, is allowed, and no other one.
func newSink(db *database, provider string) (*httpsink.Sink, error) {
	at, err := url.Parse(provider)
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddrPort(at.Host)
	if err != nil {
		return nil, err
	}
	return httpsink.New(httpsink.To(httpsink.Endpoint{URL: provider + "/charges"}), &httpsink.Options{
		Allow:     []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())},
		PlainHTTP: true, Timeout: providerMay,
		Read: func(d *outbox.Delivery, r *httpsink.Response, receipt *outbox.Receipt) {
			ctx, cancel := context.WithTimeout(context.Background(), rowMay)
			defer cancel()
			if err := answered(ctx, db, d, r, receipt); err != nil {
				receipt.Err, receipt.Answer = err, nil // the message is sent again, and gets the same answer
			}
		},
	})
}

// answered stores the provider's decision before the message is acknowledged, and turns
// it into our own answer. A decline is a decision too.
func answered(ctx context.Context, db *database, d *outbox.Delivery, r *httpsink.Response, receipt *outbox.Receipt) error {
	var made charged
	var status string
	switch r.Status {
	case http.StatusCreated:
		if err := errors.Join(r.Err, json.Unmarshal(r.Body, &made)); err != nil {
			return fmt.Errorf("the provider's answer cannot be read: %w", err)
		}
		if made.ID == "" {
			return errors.New("the provider's answer names no charge")
		}
		status = succeeded
	case http.StatusPaymentRequired:
		status = declined
	default:
		return receipt.Err // nothing is decided
	}
	if d.Settles == nil {
		return outbox.Permanent(errors.New("the message owns no key"))
	}
	row, err := db.settle(ctx, d.Settles.Scope, d.Header[transferHeader], status, made.ID)
	switch {
	case errors.Is(err, errOther), errors.Is(err, errNotFound):
		return outbox.Permanent(err) // a person has to look
	case err != nil:
		return err
	}
	result := row.created()
	if status == declined {
		result = answer(http.StatusPaymentRequired, problem{"the provider has declined"}, row.location())
	}
	receipt.Err, receipt.Answer, receipt.ProviderRef = nil, &result, made.ID
	return nil
}
