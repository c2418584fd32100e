// Package kafkasink delivers messages of an outbox to Kafka.
//
//	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
//	sink, err := kafkasink.New(client, nil)
//	worker, err := outbox.NewWorker(store, sink, nil)
//	...
//	client.Close() // after the worker has ended
//
// A message is delivered when all in-sync replicas have it. Its group is the key of its
// record, so that the messages of a group are in one partition, in their order. Its own
// key is in the header [HeaderKey].
//
// The client must be an idempotent producer, which sends a record again by itself but
// stores it once. That holds for the lifetime of the client: if a worker crashes before
// it acknowledges a message, the message is sent again as a new record, with the same key.
package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/retrysafe/retrysafe/outbox"
)

// HeaderKey is the header of a record that carries the message's key.
const HeaderKey = "idempotency-key"

// Options are the options of a [Sink]. Zero values are the defaults.
type Options struct {
	// Topic returns the Kafka topic of a message. Default: the message's topic.
	Topic func(d *outbox.Delivery) string
}

// A Sink delivers messages to Kafka. It starts nothing and has nothing to close: the
// caller closes the client.
type Sink struct {
	client *kgo.Client
	topic  func(d *outbox.Delivery) string
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink that produces with client. Opts may be nil. A client that could
// lose, duplicate or reorder records is refused.
func New(client *kgo.Client, opts *Options) (*Sink, error) {
	if client == nil {
		return nil, errors.New("kafkasink: a sink needs a client")
	}
	if off, _ := client.OptValue(kgo.DisableIdempotentWrite).(bool); off {
		return nil, errors.New("kafkasink: the client's idempotent writes are disabled, so that it could store a record twice")
	}
	if acks, _ := client.OptValue(kgo.RequiredAcks).(kgo.Acks); acks != kgo.AllISRAcks() {
		return nil, errors.New("kafkasink: the client does not wait for all in-sync replicas (kgo.AllISRAcks), so that a record could be lost")
	}
	if manual, _ := client.OptValue(kgo.ManualFlushing).(bool); manual {
		return nil, errors.New("kafkasink: the client flushes only when it is told to (kgo.ManualFlushing), and the sink does not")
	}
	s := &Sink{client: client, topic: func(d *outbox.Delivery) string { return d.Topic }}
	if opts != nil && opts.Topic != nil {
		s.topic = opts.Topic
	}
	return s, nil
}

// result is the receipt of message n of a batch.
type result struct {
	n       int
	receipt outbox.Receipt
}

// Deliver implements [outbox.Sink]. When ctx ends, records that are not confirmed are
// reported as failed. The broker may store them all the same.
func (s *Sink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	for i := range receipts {
		receipts[i].Err = errUnconfirmed
	}
	results := make(chan result, len(batch)) // there is room for results that come after the end of ctx
	for i := range batch {
		s.client.Produce(ctx, s.record(&batch[i]), func(r *kgo.Record, err error) { results <- result{i, receipt(r, err)} })
	}
	for range batch {
		select {
		case r := <-results:
			receipts[r.n] = r.receipt
		case <-ctx.Done():
			return collect(receipts, results)
		}
	}
	return receipts
}

var errUnconfirmed = errors.New("kafkasink: the broker has not confirmed the message")

// collect takes the results that have come, and does not wait for more.
func collect(receipts []outbox.Receipt, results <-chan result) []outbox.Receipt {
	for {
		select {
		case r := <-results:
			receipts[r.n] = r.receipt
		default:
			return receipts
		}
	}
}

// record returns a copy of the message: the client may keep it longer than the call of
// Deliver lasts.
func (s *Sink) record(d *outbox.Delivery) *kgo.Record {
	r := &kgo.Record{Topic: s.topic(d), Value: slices.Clone(d.Payload), Timestamp: d.Enqueued}
	if d.Group != "" {
		r.Key = []byte(d.Group)
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderKey, Value: []byte(d.Key)})
	for _, name := range slices.Sorted(maps.Keys(d.Header)) {
		if name != HeaderKey {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(d.Header[name])})
		}
	}
	return r
}

func receipt(r *kgo.Record, err error) outbox.Receipt {
	switch {
	case err == nil:
		return outbox.Receipt{ProviderRef: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)}
	case slices.ContainsFunc(unfit, func(e error) bool { return errors.Is(err, e) }):
		err = outbox.Permanent(err)
	}
	return outbox.Receipt{Err: fmt.Errorf("kafkasink: produce: %w", err)}
}

// unfit are the errors of records that a broker will never take.
var unfit = []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTopicException}
