package adminclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// Messages returns dead letters with ids above after, or messages that fail.
func (c *Client) Messages(ctx context.Context, failing bool, after int64, limit int) ([]adminwire.MessageView, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if failing {
		q.Set("failing", "true")
	}
	if after > 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	var got adminwire.Messages
	if err := c.get(ctx, "/outbox/messages", q, &got); err != nil {
		return nil, err
	}
	var all []adminwire.MessageView
	for i := range got.Messages {
		all = append(all, got.Messages[i].View())
	}
	return all, nil
}

// Message returns a message that is a dead letter, or one that fails and is still tried.
func (c *Client) Message(ctx context.Context, id int64) (m adminwire.MessageView, dead bool, err error) {
	var got adminwire.Message
	if err := c.get(ctx, messagePath(id), nil, &got); err != nil {
		return m, false, err
	}
	return got.View(), got.Dead, nil
}

func messagePath(id int64) string { return "/outbox/messages/" + strconv.FormatInt(id, 10) }

// messageVerbs are the last parts of the paths of the verbs.
var messageVerbs = map[string]string{"redrive letter": "redrive", "drop letter": "drop", "skip message": "skip"}

// ActOnMessage applies a verb to one message.
func (c *Client) ActOnMessage(ctx context.Context, verb string, a operator.DeadLetterAction) (operator.Entry, error) {
	path, ok := messageVerbs[verb]
	if !ok {
		return operator.Entry{}, fmt.Errorf("there is no verb %q", verb)
	}
	var o adminwire.Outcome
	in := adminwire.Action{ID: a.ID, Revision: a.Revision, Why: a.Why, Force: a.Force}
	if err := c.post(ctx, messagePath(a.Letter)+"/"+path, in, &o); err != nil {
		return operator.Entry{}, err
	}
	return o.Operator(), nil
}

// Payload returns a message with its payload. The audit of the gateway says so.
func (c *Client) Payload(ctx context.Context, m adminwire.MessageView, why string) (adminwire.MessageView, error) {
	var o adminwire.Outcome
	if err := c.post(ctx, messagePath(m.ID)+"/reveal", adminwire.Action{Revision: m.Revision, Why: why}, &o); err != nil {
		return m, err
	}
	if o.Message == nil {
		return m, errors.New("the gateway has revealed nothing")
	}
	return o.Message.View(), nil
}

// Depth counts the messages.
func (c *Client) Depth(ctx context.Context) (d adminwire.Depth, err error) {
	err = c.get(ctx, "/outbox/depth", nil, &d)
	return d, err
}

// Receipts returns receipts of delivered messages.
func (c *Client) Receipts(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
	v := url.Values{"limit": {strconv.Itoa(min(max(q.Limit, 1), 1000))}}
	for name, value := range map[string]string{"provider_ref": q.ProviderRef, "settled": adminwire.FormatRef(q.Settled)} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.After > 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	var got adminwire.Receipts
	if err := c.get(ctx, "/outbox/receipts", v, &got); err != nil {
		return nil, err
	}
	return got.Kept(), nil
}
