package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// journalTimeout bounds a step of the journal that must not end with the caller's context.
const journalTimeout = 10 * time.Second

// runJournaled runs an operation that is stored before it is sent.
func (c *Client) runJournaled(ctx context.Context, op *Operation, secret http.Header) (*http.Response, error) {
	stored, found, err := c.o.Journal.Begin(ctx, *op)
	if err != nil {
		return nil, c.notBegun(ctx, op, err)
	}
	if !found {
		return c.runStored(ctx, op, secret, false)
	}
	k := c.newCall(&stored, secret, true)
	switch {
	case !stored.same(op):
		return nil, &MismatchError{Operation: k.name(), Key: stored.Key}
	case stored.Abandoned != "":
		return nil, fmt.Errorf("%s%w: %s; nothing was sent", about(k.name()), ErrAbandoned, stored.Abandoned)
	case stored.Answer != nil && !stored.Answer.Streamed:
		return k.fromJournal()
	case stored.Answer != nil && !stored.Expires.IsZero() && time.Now().After(stored.Expires):
		return nil, &UnknownError{Operation: k.name(), Key: stored.Key, Status: stored.Answer.Status, TooOld: true, Detail: "its answer was too large for the journal"}
	}
	return c.runStored(ctx, &stored, secret, true)
}

// notBegun returns the error of an operation that could not be stored. Whether it is there all
// the same may not be known; what is there would be sent by a later Resume.
func (c *Client) notBegun(ctx context.Context, op *Operation, err error) error {
	step, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTimeout)
	defer cancel()
	next := "nothing was sent"
	if _, releasing := c.o.Journal.Release(step, *op); releasing != nil {
		next = "nothing was sent; it may be in the journal all the same, and Resume would send it then: look there first"
	}
	return fmt.Errorf("%sjournal: %w; %s", about(c.newCall(op, nil, false).name()), err, next)
}

// runStored runs an operation that is in the journal. Found says that it was there before.
func (c *Client) runStored(ctx context.Context, op *Operation, secret http.Header, found bool) (*http.Response, error) {
	k := c.newCall(op, secret, found)
	if found && op.Profile == KeysIgnored {
		return nil, &UnknownError{Operation: k.name(), Key: op.Key}
	}
	response, err := k.run(ctx)
	step, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTimeout)
	defer cancel()
	switch {
	case k.settled:
		op.Answer = &Answer{Status: k.response.StatusCode, Header: k.response.Header.Clone(), Body: k.body, Streamed: k.streamed}
		if k.streamed {
			op.Answer.Body = nil
		}
		op.Ended = time.Now().UTC()
		// If it cannot be stored, the operation stays unfinished, and asking again gets the
		// same answer. The caller has it now.
		_ = c.o.Journal.End(step, *op)
	case !k.doubt: // it did not happen, so that it must not happen later either
		released, failed := c.o.Journal.Release(step, *op)
		if released {
			break
		}
		if failed == nil {
			failed = errors.New("another call for the operation is under way")
		}
		if response != nil {
			response.Body.Close()
		}
		k.doubt = true
		return nil, k.exhausted(errors.Join(err, failed))
	}
	return response, err
}

// fromJournal returns the answer that the journal has.
func (k *call) fromJournal() (*http.Response, error) {
	target, err := url.Parse(k.op.URL)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	a := k.op.Answer
	k.target = target
	k.response = &http.Response{
		StatusCode: a.Status, Status: fmt.Sprintf("%03d %s", a.Status, http.StatusText(a.Status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header.Clone(), Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)),
	}
	if s := readSigns(k.response, a.Body); classify(k.op.Profile, k.response, s, true) == mismatch {
		return nil, &MismatchError{Operation: k.name(), Key: k.op.Key, Status: a.Status, Detail: s.detail}
	}
	if k.response.Header == nil {
		k.response.Header = http.Header{}
	}
	k.response.Header["Idempotent-Replayed"] = []string{"true"}
	return k.answer(), nil
}

// Resume sends every unfinished operation of the journal again, with its own key and bytes,
// one after the other, the oldest first. It calls each with the final answer, or with the
// error of the operation, which is one of those that RoundTrip returns. The body of the answer
// need not be closed.
//
// A process calls it once, before it begins new operations. It returns an error if there is no
// journal, if it cannot be read, or if ctx ends.
func (c *Client) Resume(ctx context.Context, each func(op Operation, response *http.Response, err error)) error {
	if c.o.Journal == nil {
		return errors.New("client: there is no journal to resume from; set Options.Journal")
	}
	all, err := c.o.Journal.Operations(ctx)
	if err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	for i := range all {
		op := &all[i]
		if target, err := url.Parse(op.URL); err == nil && op.Answer != nil && !op.Expires.IsZero() && !replayed(op.Answer.Header) {
			c.retention.learn(target.Host, op.Expires.Sub(op.Ended))
		}
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("client: resume: %w", context.Cause(ctx))
		}
		if op := all[i]; op.Unfinished() {
			response, err := c.runStored(ctx, &op, nil, true)
			each(op, response, err)
			if response != nil {
				response.Body.Close()
			}
		}
	}
	return nil
}
