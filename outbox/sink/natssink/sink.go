// Package natssink delivers messages of an outbox to a stream of NATS JetStream.
//
//	js, err := jetstream.New(conn)
//	sink, err := natssink.New(js, nil)
//	worker, err := outbox.NewWorker(store, sink, nil)
//
// A message is delivered when a stream has acknowledged it. Its key is in the header
// [HeaderKey]. Subject and key together are the Nats-Msg-Id, by which the stream drops
// messages that it has seen within its Duplicates window, two minutes by default. A
// message that is sent again after the window is stored again.
package natssink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/retrysafe/retrysafe/outbox"
)

// HeaderKey is the header that carries the message's key.
const HeaderKey = "Idempotency-Key"

// Options are the options of a [Sink]. Zero values are the defaults.
type Options struct {
	// Subject returns the subject of a message. Default: its topic.
	Subject func(d *outbox.Delivery) string
	// Stream, if set, is the only stream whose acknowledgement counts.
	Stream string
}

// A Sink delivers messages to JetStream. It starts nothing and has nothing to close: the
// caller closes the connection.
type Sink struct {
	js      jetstream.JetStream
	subject func(d *outbox.Delivery) string
	opts    []jetstream.PublishOpt
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink that publishes to js. Opts may be nil.
func New(js jetstream.JetStream, opts *Options) (*Sink, error) {
	if js == nil {
		return nil, errors.New("natssink: a sink needs a JetStream")
	}
	s := &Sink{
		js:      js,
		subject: func(d *outbox.Delivery) string { return d.Topic },
		opts:    []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)}, // the worker sends again, and counts the tries
	}
	if opts != nil && opts.Subject != nil {
		s.subject = opts.Subject
	}
	if opts != nil && opts.Stream != "" {
		s.opts = append(s.opts, jetstream.WithExpectStream(opts.Stream))
	}
	return s, nil
}

// Deliver implements [outbox.Sink]. It publishes all messages of a batch at once.
func (s *Sink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	var all sync.WaitGroup
	for i := range batch {
		all.Go(func() { receipts[i] = s.publish(ctx, &batch[i]) })
	}
	all.Wait()
	return receipts
}

// errDown: a client without a connection would buffer the message and send it after the
// reconnect, long after the sink has reported it as failed.
var errDown = errors.New("natssink: there is no connection")

func (s *Sink) publish(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
	m, err := s.message(d)
	if err != nil {
		return outbox.Receipt{Err: outbox.Permanent(err)}
	}
	if !s.js.Conn().IsConnected() {
		return outbox.Receipt{Err: errDown}
	}
	ack, err := s.js.PublishMsg(ctx, m, s.opts...)
	switch {
	case err == nil:
		return outbox.Receipt{ProviderRef: fmt.Sprintf("%s/%d", ack.Stream, ack.Sequence)}
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), tooLarge(err):
		err = outbox.Permanent(err)
	}
	return outbox.Receipt{Err: fmt.Errorf("natssink: publish: %w", err)}
}

// message returns the message for the broker. It refuses headers that control the broker:
// a message is data.
func (s *Sink) message(d *outbox.Delivery) (*nats.Msg, error) {
	m := nats.NewMsg(s.subject(d))
	m.Data = d.Payload
	for name, value := range d.Header {
		switch {
		case len(name) >= 5 && strings.EqualFold(name[:5], "Nats-"):
			return nil, fmt.Errorf("natssink: a message cannot set the header %s, which is the broker's", name)
		case name == "" || strings.ContainsAny(name, ": \r\n") || strings.ContainsAny(value, "\r\n"):
			return nil, fmt.Errorf("natssink: the header %q of the message cannot be sent", name)
		}
		m.Header.Set(name, value)
	}
	if strings.ContainsAny(d.Key, "\r\n") {
		return nil, errors.New("natssink: the key has a line break, which a header cannot carry")
	}
	m.Header.Set(HeaderKey, d.Key)
	// A stream compares ids across its subjects, but two messages with one key and
	// different subjects are two messages. So the id has the subject too.
	m.Header.Set(jetstream.MsgIDHeader, m.Subject+"/"+d.Key)
	return m, nil
}

// tooLarge reports whether the stream refuses messages of this size.
func tooLarge(err error) bool {
	const messageExceedsMaximum = 10054
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == messageExceedsMaximum
}
