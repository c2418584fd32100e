// Package redissink delivers messages of an outbox to streams of Redis.
//
//	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
//	sink, err := redissink.New(client, nil)
//	worker, err := outbox.NewWorker(store, sink, nil)
//
// A message is delivered when the server has returned the id of its entry and, if
// [Options.Replicas] is set, that many replicas have it. That is as durable as the
// server's appendfsync. A message that is sent again is another entry with the same key.
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

// The fields of an entry. The message's headers follow, each with "header:" before
// its name.
const (
	FieldKey     = "key"
	FieldTopic   = "topic"
	FieldGroup   = "group"
	FieldPayload = "payload"
	headerPrefix = "header:"
)

// Options are the options of a [Sink]. Zero values are the defaults.
type Options struct {
	// Stream returns the stream of a message. Default: its topic.
	Stream func(d *outbox.Delivery) string
	// MaxLen, if not zero, trims a stream to about this many entries. Trimmed entries
	// are gone, read or not.
	MaxLen int64
	// Replicas, if not zero, is how many replicas must have a message before it counts
	// as delivered. They have ReplicaWait for it, by default 1 s. The client's
	// ReadTimeout must be longer.
	Replicas    int
	ReplicaWait time.Duration
}

// A Sink delivers messages to Redis. It starts nothing and has nothing to close: the
// caller closes the client.
type Sink struct {
	client *redis.Client
	opts   Options
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink that appends entries with client. Opts may be nil. A client that
// sends commands again by itself is refused: each copy would be an entry of its own.
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
		return nil, fmt.Errorf("redissink: the client sends a command up to %d times more by itself; set MaxRetries to -1", c.MaxRetries)
	case !c.ContextTimeoutEnabled:
		return nil, errors.New("redissink: the client ignores the deadlines of contexts; set ContextTimeoutEnabled")
	case o.MaxLen < 0 || o.Replicas < 0 || o.ReplicaWait < time.Millisecond:
		return nil, errors.New("redissink: an option is negative, or ReplicaWait under a millisecond")
	case o.Replicas > 0 && c.ReadTimeout > 0 && c.ReadTimeout <= o.ReplicaWait:
		return nil, fmt.Errorf("redissink: the client waits %v for a reply, which is not longer than ReplicaWait %v", c.ReadTimeout, o.ReplicaWait)
	}
	return &Sink{client, o}, nil
}

var (
	errUnconfirmed = errors.New("redissink: the server has not confirmed the message")
	errReplicas    = errors.New("redissink: too few replicas have the message")
)

// Deliver implements [outbox.Sink]. A batch is one pipeline.
func (s *Sink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	pipe := s.client.Pipeline()
	entries := make([]*redis.StringCmd, len(batch))
	for i := range batch {
		entries[i] = pipe.XAdd(ctx, s.entry(&batch[i]))
	}
	var replicas *redis.Cmd
	if s.opts.Replicas > 0 { // WAIT is for the writes of its own connection, which is the pipeline's
		replicas = pipe.Do(ctx, "WAIT", s.opts.Replicas, s.opts.ReplicaWait.Milliseconds())
	}
	_, err := pipe.Exec(ctx)
	confirmed := replicas == nil || replicated(replicas) >= s.opts.Replicas
	for i, entry := range entries {
		switch {
		case entry.Err() != nil:
			receipts[i].Err = fmt.Errorf("redissink: append: %w", entry.Err())
		case entry.Val() == "":
			receipts[i].Err = errors.Join(errUnconfirmed, err)
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
		fields = append(fields, headerPrefix+name, d.Header[name])
	}
	return &redis.XAddArgs{Stream: s.opts.Stream(d), MaxLen: s.opts.MaxLen, Approx: s.opts.MaxLen > 0, Values: fields}
}
