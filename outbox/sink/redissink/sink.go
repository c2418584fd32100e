// Package redissink delivers messages of an outbox to streams of Redis.
//
//	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
//	sink, err := redissink.New(client, nil)
//	worker, err := outbox.NewWorker(store, sink, nil)
//
// A message is delivered when the server has returned the id of its entry, and, if
// that is wanted, so many replicas have it. That is as durable as the server's
// appendfsync. A message that is sent again is another entry with the same key.
package redissink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/outbox"
)

// The fields of an entry. Those of the message's headers follow, each with
// [HeaderPrefix] before its name.
const (
	FieldKey     = "key"
	FieldTopic   = "topic"
	FieldGroup   = "group"
	FieldPayload = "payload"
	HeaderPrefix = "header:"
)

// Options are what a [Sink] may be given. Zero values are the defaults.
type Options struct {
	// Stream names the stream of a message. Default: its topic.
	Stream func(d *outbox.Delivery) string
	// MaxLen, if not zero, lets a stream be trimmed to about so many entries. What
	// is trimmed is gone, read or not.
	MaxLen int64
	// Replicas, if not zero, must have the messages before they count as delivered,
	// and have at most ReplicaWait for it. Default 1 s. The client's ReadTimeout
	// must be longer.
	Replicas    int
	ReplicaWait time.Duration
}

// A Sink delivers messages to Redis. It starts nothing and holds nothing that is to
// be closed: the client is its owner's.
type Sink struct {
	client *redis.Client
	opts   Options
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink that appends through client. Opts may be nil. A client that
// sends commands again by itself is refused: each would be an entry of its own.
func New(client *redis.Client, opts *Options) (*Sink, error) {
	if client == nil {
		return nil, errors.New("redissink: a sink needs a client")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Stream == nil {
		o.Stream = func(d *outbox.Delivery) string { return d.Topic }
	}
	if o.ReplicaWait == 0 {
		o.ReplicaWait = time.Second
	}
	switch c := client.Options(); {
	case c.MaxRetries > 0:
		return nil, fmt.Errorf("redissink: the client sends commands up to %d times more by itself; set MaxRetries to -1", c.MaxRetries)
	case !c.ContextTimeoutEnabled:
		return nil, errors.New("redissink: the client does not heed the deadlines of contexts; set ContextTimeoutEnabled")
	case o.MaxLen < 0 || o.Replicas < 0 || o.ReplicaWait < time.Millisecond:
		return nil, errors.New("redissink: an option is negative, or ReplicaWait under a millisecond")
	case o.Replicas > 0 && c.ReadTimeout > 0 && c.ReadTimeout <= o.ReplicaWait:
		return nil, fmt.Errorf("redissink: the client waits %v for a reply, which is not longer than ReplicaWait %v", c.ReadTimeout, o.ReplicaWait)
	}
	return &Sink{client, o}, nil
}

var (
	errNoWord   = errors.New("redissink: the server has not said that it has the message")
	errReplicas = errors.New("redissink: too few replicas have the message")
)

// Deliver implements [outbox.Sink]: a batch is one pipeline.
func (s *Sink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	pipe := s.client.Pipeline()
	entries := make([]*redis.StringCmd, len(batch))
	for i := range batch {
		entries[i] = pipe.XAdd(ctx, s.entry(&batch[i]))
	}
	var replicas *redis.Cmd
	if s.opts.Replicas > 0 { // it counts what was written on its own connection, which is the pipeline's
		replicas = pipe.Do(ctx, "WAIT", s.opts.Replicas, s.opts.ReplicaWait.Milliseconds())
	}
	_, err := pipe.Exec(ctx)
	confirmed := replicas == nil || replicated(replicas) >= s.opts.Replicas
	for i, entry := range entries {
		switch {
		case entry.Err() != nil:
			receipts[i].Err = fmt.Errorf("redissink: append: %w", entry.Err())
		case entry.Val() == "":
			receipts[i].Err = errors.Join(errNoWord, err)
		case !confirmed:
			receipts[i].Err = errReplicas
		default:
			receipts[i].ProviderRef = entry.Val()
		}
	}
	return receipts
}

func replicated(c *redis.Cmd) int {
	n, err := c.Int()
	if err != nil {
		return -1
	}
	return n
}

func (s *Sink) entry(d *outbox.Delivery) *redis.XAddArgs {
	fields := []any{FieldKey, d.Key, FieldTopic, d.Topic, FieldGroup, d.Group, FieldPayload, d.Payload}
	for _, name := range slices.Sorted(maps.Keys(d.Header)) {
		fields = append(fields, HeaderPrefix+name, d.Header[name])
	}
	return &redis.XAddArgs{Stream: s.opts.Stream(d), MaxLen: s.opts.MaxLen, Approx: s.opts.MaxLen > 0, Values: fields}
}
