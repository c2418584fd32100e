package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// box returns the dead letters, or a problem if there is no outbox.
func (a *API) box() (*operator.DeadLetters, error) {
	if a.letters == nil {
		return nil, unsupported("there is no outbox here")
	}
	return a.letters, nil
}

func unsupported(detail string) error {
	return &refusal{problem(http.StatusNotImplemented, adminwire.CodeUnsupported, detail)}
}

func (a *API) depth(c *call) (any, error) {
	letters, err := a.box()
	if err != nil {
		return nil, err
	}
	reporter, ok := a.Outbox.(outbox.DepthReporter)
	if !ok {
		return nil, unsupported("this store cannot count its messages")
	}
	d, err := reporter.Depth(c.Context())
	if err != nil {
		return nil, err
	}
	out := adminwire.Depth{Waiting: d.Waiting, Dead: d.Dead, Oldest: d.Oldest.Seconds(), OldestDead: d.OldestDead.Seconds()}
	const page = 1000
	for after := int64(0); ; {
		some, err := letters.Failing(c.Context(), after, page)
		if errors.Is(err, errors.ErrUnsupported) {
			out.Failing = -1
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if out.Failing += len(some); len(some) < page {
			return out, nil
		}
		after = some[len(some)-1].ID
	}
}

func (a *API) messages(c *call) (any, error) {
	letters, err := a.box()
	if err != nil {
		return nil, err
	}
	q := adminwire.ParseQuery(c.URL.RawQuery)
	failing, after, limit := q.Bool("failing"), q.Int("after", 0, 1<<62), q.Int("limit", 1, 1000)
	if err := q.End(); err != nil {
		return nil, invalid("%v", err)
	}
	list := letters.List
	if failing {
		list = letters.Failing
	}
	if limit == 0 {
		limit = 100
	}
	some, err := list(c.Context(), after, int(limit))
	if err != nil {
		return nil, err
	}
	out := adminwire.Messages{Messages: []adminwire.Message{}}
	for i := range some {
		out.Messages = append(out.Messages, adminwire.NewMessage(&some[i], !failing, c.detail()))
	}
	return out, nil
}

// messageID returns the message that the path names.
func (c *call) messageID() (int64, error) {
	id, err := strconv.ParseInt(c.PathValue("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, &refusal{problem(http.StatusNotFound, adminwire.CodeNotFound, "this is not the id of a message")}
	}
	return id, nil
}

func (a *API) message(c *call) (any, error) {
	letters, err := a.box()
	if err != nil {
		return nil, err
	}
	id, err := c.messageID()
	if err != nil {
		return nil, err
	}
	m, err := letters.Show(c.Context(), id)
	if err == nil {
		return adminwire.NewMessage(&m, true, c.detail()), nil
	}
	if !errors.Is(err, retrysafe.ErrNotFound) {
		return nil, err
	}
	some, err := letters.Failing(c.Context(), id-1, 1)
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && (len(some) == 0 || some[0].ID != id):
		return nil, retrysafe.ErrNotFound
	case err != nil:
		return nil, err
	}
	return adminwire.NewMessage(&some[0], false, c.detail()), nil
}

// letterAction returns the action that a request asks for on the message of its path.
func (a *API) letterAction(c *call) (*operator.DeadLetters, operator.DeadLetterAction, error) {
	var in adminwire.Action
	letters, err := a.box()
	if err != nil {
		return nil, operator.DeadLetterAction{}, err
	}
	id, err := c.messageID()
	if err == nil {
		err = c.read(&in)
	}
	if err == nil && (in.Answer != nil || in.ProviderRef != "") {
		err = invalid("answer and provider_ref are not for messages")
	}
	return letters, operator.DeadLetterAction{ID: in.ID, By: c.by.Name, Why: in.Why, Letter: id, Revision: in.Revision, Force: in.Force}, err
}

// letter serves a verb for one message.
func letter(do func(*operator.DeadLetters, context.Context, operator.DeadLetterAction) (operator.Entry, error)) func(*API, *call) (any, error) {
	return func(a *API, c *call) (any, error) {
		letters, act, err := a.letterAction(c)
		if err != nil {
			return nil, err
		}
		ctx, cancel := c.acting()
		defer cancel()
		e, err := do(letters, ctx, act)
		if err != nil {
			return nil, &actionError{e.ID, err}
		}
		return adminwire.Outcome{Entry: e, Replayed: e.Replayed}, nil
	}
}

// revealMessage returns a message with its payload. The audit says so.
func (a *API) revealMessage(c *call) (any, error) {
	letters, act, err := a.letterAction(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.acting()
	defer cancel()
	m, e, err := letters.Reveal(ctx, act)
	if err != nil {
		return nil, &actionError{e.ID, err}
	}
	message := adminwire.NewMessage(&m, !m.Died.IsZero(), adminwire.Contents)
	return adminwire.Outcome{Entry: e, Replayed: e.Replayed, Message: &message}, nil
}

func (a *API) receipts(c *call) (any, error) {
	if _, err := a.box(); err != nil {
		return nil, err
	}
	keeper, ok := a.Outbox.(outbox.ReceiptKeeper)
	if !ok {
		return nil, unsupported("this store keeps no receipts")
	}
	q := adminwire.ParseQuery(c.URL.RawQuery)
	query := outbox.ReceiptQuery{ProviderRef: q.Text("provider_ref"), Settled: q.Ref("settled"), After: q.Int("after", 0, 1<<62), Limit: int(q.Int("limit", 1, 1000))}
	if err := q.End(); err != nil {
		return nil, invalid("%v", err)
	}
	if query.Limit == 0 {
		query.Limit = 100
	}
	list, err := keeper.Receipts(c.Context(), query)
	if err != nil {
		return nil, err
	}
	return adminwire.NewReceipts(list), nil
}
