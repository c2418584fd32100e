// Package amqpsink delivers messages of an outbox to a broker of AMQP 0.9.1, such as
// RabbitMQ.
//
//	sink, err := amqpsink.New("amqps://user:password@broker/", nil)
//	defer sink.Close()
//	worker, err := outbox.NewWorker(store, sink, nil)
//
// A message is delivered when the broker has confirmed it: it is persistent, and in at
// least one queue. The broker returns a message that no queue takes; its delivery has
// failed. The message's key is the message-id. A message that is sent again is another
// message with the same id.
//
// Connections are opened when they are needed, and reopened when they break.
package amqpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/retrysafe/retrysafe/outbox"
)

// Options are the options of a [Sink]. Zero values are the defaults.
type Options struct {
	// Exchange is where messages are published. Default: the broker's own, which
	// takes a routing key for the name of a queue.
	Exchange string
	// RoutingKey names the routing key of a message. Default: its topic.
	RoutingKey func(d *outbox.Delivery) string
	// TLS is for brokers with certificate authorities of their own.
	TLS *tls.Config
	// Connections is how many batches may be under way. Each has a connection of its
	// own. Default 4.
	Connections int
}

// A Sink delivers messages to a broker.
type Sink struct {
	url   string
	opts  Options
	slots chan struct{}

	mu     sync.Mutex
	idle   []*session
	closed bool
}

var _ outbox.Sink = (*Sink)(nil)

// ErrClosed says that the sink was closed.
var ErrClosed = errors.New("amqpsink: the sink is closed")

// New returns a sink that publishes to the broker at url. Opts may be nil. It does
// not connect yet.
func New(url string, opts *Options) (*Sink, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if _, err := amqp.ParseURI(url); err != nil {
		return nil, errors.New("amqpsink: the URL of the broker cannot be read") // the cause may quote a password
	}
	if o.Connections < 0 {
		return nil, errors.New("amqpsink: Connections is negative")
	}
	if o.RoutingKey == nil {
		o.RoutingKey = func(d *outbox.Delivery) string { return d.Topic }
	}
	return &Sink{url: url, opts: o, slots: make(chan struct{}, cmp.Or(o.Connections, 4))}, nil
}

// Deliver implements [outbox.Sink].
func (s *Sink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	for start := 0; start < len(batch); start += window {
		end := min(start+window, len(batch))
		if err := s.deliver(ctx, batch[start:end], receipts[start:end]); err != nil {
			for i := start; i < end; i++ {
				receipts[i].Err = fmt.Errorf("amqpsink: %w", err)
			}
		}
	}
	return receipts
}

// deliver sends messages on a connection that no other batch uses. An error means that
// none was sent.
func (s *Sink) deliver(ctx context.Context, batch []outbox.Delivery, receipts []outbox.Receipt) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	session, err := s.take(ctx)
	if err != nil {
		return err
	}
	if session.publish(ctx, &s.opts, batch, receipts) {
		s.put(session)
	} else {
		session.kill()
	}
	return nil
}

// take returns an idle session, or opens one.
func (s *Sink) take(ctx context.Context) (*session, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	for n := len(s.idle); n > 0; n = len(s.idle) {
		last := s.idle[n-1]
		s.idle = s.idle[:n-1]
		if last.channel.IsClosed() {
			last.kill()
			continue
		}
		s.mu.Unlock()
		return last, nil
	}
	s.mu.Unlock()
	return open(ctx, s.url, s.opts.TLS)
}

// put makes a session idle.
func (s *Sink) put(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		session.kill()
		return
	}
	s.idle = append(s.idle, session)
}

// Close closes the idle connections, and the others when their batches end. Messages that
// are not confirmed by then were reported as failed.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, session := range s.idle {
		session.kill()
	}
	s.idle = nil
}
