package amqpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/retrysafe/retrysafe/outbox"
)

// window is how many messages may wait for their confirmations on one channel.
const window = 256

// A session is a connection with one channel. One batch uses it at a time. It is used
// again only if the broker has confirmed or refused all that was sent on it.
type session struct {
	socket  net.Conn
	conn    *amqp.Connection
	channel *amqp.Channel
	// returns has room for all messages of a window, because a full channel would block
	// the connection's reader. The broker returns a message before it confirms it.
	returns chan amqp.Return
	closes  chan *amqp.Error
	why     *amqp.Error // why the channel was closed, if it was
}

// open connects. It returns when ctx ends, whatever the broker does.
func open(ctx context.Context, url string, tlsConfig *tls.Config) (s *session, err error) {
	s = &session{returns: make(chan amqp.Return, window), closes: make(chan *amqp.Error, 1)}
	defer func() {
		if err != nil {
			s.kill()
		}
	}()
	unbind := func() bool { return true }
	defer func() {
		if !unbind() && err == nil {
			err = ctx.Err()
		}
	}()
	s.conn, err = amqp.DialConfig(url, amqp.Config{
		TLSClientConfig: tlsConfig,
		Dial: func(network, addr string) (net.Conn, error) {
			var err error
			if s.socket, err = new(net.Dialer).DialContext(ctx, network, addr); err != nil {
				return nil, err
			}
			unbind = s.bind(ctx)
			return s.socket, nil
		},
	})
	if err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	if s.channel, err = s.conn.Channel(); err != nil {
		return s, fmt.Errorf("open channel: %w", err)
	}
	if err := s.channel.Confirm(false); err != nil {
		return s, fmt.Errorf("ask for confirmations: %w", err)
	}
	s.channel.NotifyReturn(s.returns)
	s.channel.NotifyClose(s.closes)
	return s, nil
}

// bind closes the connection when ctx ends: the client does not observe contexts, and a
// broker under a resource alarm reads nothing. The returned function undoes that, and
// reports whether it came before the end of ctx.
func (s *session) bind(ctx context.Context) (unbind func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.socket.Close() })
}

// kill closes the connection at once. An orderly close could wait for the broker.
func (s *session) kill() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
	if s.conn != nil {
		_ = s.conn.Close() // it fails at once, and ends the client's goroutines
	}
}

// errUnconfirmed: the broker may have the message, or not.
var errUnconfirmed = errors.New("amqpsink: the broker has not confirmed the message")

// ErrUnroutable says that no queue takes the message.
var ErrUnroutable = errors.New("amqpsink: no queue takes the message")

// publish sends messages and waits until the broker has confirmed or refused each. It
// reports whether the session can be used again.
func (s *session) publish(ctx context.Context, opts *Options, batch []outbox.Delivery, receipts []outbox.Receipt) (usable bool) {
	unbind := s.bind(ctx)
	defer func() { usable = unbind() && usable }()
	confirmations := make([]*amqp.DeferredConfirmation, len(batch))
	var failed error
	for i := range batch {
		d := &batch[i]
		if err := check(d); err != nil {
			receipts[i].Err = outbox.Permanent(err)
			continue
		}
		if failed == nil {
			confirmations[i], failed = s.channel.PublishWithDeferredConfirmWithContext(ctx, opts.Exchange, opts.RoutingKey(d), true, false, publishing(d))
		}
		if failed != nil {
			receipts[i].Err = fmt.Errorf("amqpsink: publish: %w", failed)
		}
	}
	usable = failed == nil
	for i, c := range confirmations {
		if c == nil || receipts[i].Err != nil {
			continue
		}
		if acked, err := c.WaitContext(ctx); err != nil {
			receipts[i].Err, usable = errors.Join(errUnconfirmed, err), false
		} else if !acked {
			receipts[i].Err = s.refused()
		}
	}
	s.takeReturns(opts, batch, receipts)
	return usable && !s.channel.IsClosed()
}

// refused returns why a message was not acknowledged, as far as the broker said so.
func (s *session) refused() error {
	select {
	case why := <-s.closes: // comes once
		s.why = cmp.Or(s.why, why)
	default:
	}
	if s.why != nil {
		return fmt.Errorf("%w: %w", errUnconfirmed, s.why)
	}
	return errUnconfirmed
}

// takeReturns marks the messages that the broker has returned as failed, although it has
// confirmed them. The returns of all confirmed messages have come by now.
func (s *session) takeReturns(opts *Options, batch []outbox.Delivery, receipts []outbox.Receipt) {
	type name struct{ route, id string }
	back := map[name]string{}
	for {
		select {
		case r, open := <-s.returns:
			if open {
				back[name{r.RoutingKey, r.MessageId}] = r.ReplyText
				continue
			}
		default:
		}
		break
	}
	if len(back) == 0 {
		return
	}
	for i := range batch {
		if text, ok := back[name{opts.RoutingKey(&batch[i]), batch[i].Key}]; ok && receipts[i].Err == nil {
			receipts[i].Err = fmt.Errorf("%w: %s", ErrUnroutable, text)
		}
	}
}

// check refuses a message that would break the connection, and so fail all others on it.
func check(d *outbox.Delivery) error {
	for name := range d.Header {
		if len(name) > 255 {
			return fmt.Errorf("amqpsink: the name of a header has %d bytes, 255 are allowed", len(name))
		}
	}
	return nil
}

func publishing(d *outbox.Delivery) amqp.Publishing {
	p := amqp.Publishing{MessageId: d.Key, DeliveryMode: amqp.Persistent, Timestamp: d.Enqueued, Body: d.Payload}
	if len(d.Header) > 0 {
		p.Headers = make(amqp.Table, len(d.Header))
		for name, value := range d.Header {
			p.Headers[name] = value
		}
	}
	p.ContentType = d.Header["Content-Type"]
	if len(p.ContentType) > 255 {
		p.ContentType = ""
	}
	return p
}
