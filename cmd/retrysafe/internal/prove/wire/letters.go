package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/httpsink"
)

// letters are messages of an outbox to services that die.
type letters struct {
	outbox   outbox.Store
	enqueue  func(ctx context.Context, messages []outbox.Message) error
	sink     outbox.Sink
	services map[string]*service // by topic
	random   *rand.Rand
	result   *prove.Result
	tell     *progress
}

// sinkTimeout is how long a letter waits for a service that hangs.
const sinkTimeout = time.Second

// httpSink returns the sink that users have, for services on this machine.
func httpSink(services map[string]*service, cert *certificate) (outbox.Sink, error) {
	return httpsink.New(func(_ context.Context, d *outbox.Delivery) (httpsink.Endpoint, error) {
		return httpsink.Endpoint{URL: services[d.Topic].url + "/letters/" + d.Key}, nil
	}, &httpsink.Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PlainHTTP: true, Timeout: sinkTimeout,
		TLS: &tls.Config{RootCAs: cert.pool, MinVersion: tls.VersionTLS12},
	})
}

// enqueueIn returns what enqueues messages in a transaction.
func enqueueIn(p *sandbox.DB) func(ctx context.Context, messages []outbox.Message) error {
	return func(ctx context.Context, messages []outbox.Message) error {
		tx, _, err := p.TxStore().BeginTx(ctx)
		if err != nil {
			return err
		}
		in, ok := tx.(outbox.Enqueuer)
		if !ok {
			return errors.Join(fmt.Errorf("%T takes no messages", tx), tx.Rollback(ctx))
		}
		if err := in.Enqueue(ctx, messages...); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
}

// run sends letters under which the services die so often, and judges them when all
// have arrived. Every third one meets no death, so that there are connections to keep.
func (p *letters) run(ctx context.Context, kills int) error {
	var messages []outbox.Message
	doomed := map[string][]death{}
	topics := slices.Sorted(maps.Keys(p.services))
	for n := 0; len(doomed) < kills || n%3 != 0; n++ {
		topic := topics[n%len(topics)]
		m := outbox.Message{Topic: topic, Key: fmt.Sprintf("wire-letter-%s-%d", tag(topic), n)}
		if p.random.IntN(2) == 0 {
			m.Payload = fmt.Appendf(nil, `{"letter":%d}`, n)
		}
		if n%3 > 0 && len(doomed) < kills {
			deaths := deaths1
			if topic == "HTTP/2" {
				deaths = deaths2
			}
			doomed[m.Key] = []death{deaths[n/3%len(deaths)]}
			p.services[topic].doom(doomed[m.Key], m.Key)
		}
		messages = append(messages, m)
	}
	for some := range slices.Chunk(messages, 100) {
		if err := p.enqueue(ctx, some); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	noted, err := p.deliver(ctx, len(messages))
	if err != nil {
		return err
	}
	for i := range messages {
		m := &messages[i]
		o, tries := p.services[m.Topic].of(m.Key), noted.tries(m.Key)
		if o.calls > tries {
			p.result.Violatef("S16", m.Key, "outbox, %s: after %q the service was called %d times in %d tries", m.Topic, doomed[m.Key], o.calls, tries)
		}
		if err := o.alike(); err != nil || !o.keys[m.Key] || !o.bodies[string(m.Payload)] {
			p.result.Violatef("S11", m.Key, "outbox, %s: after %q the message did not arrive as it was enqueued: %v", m.Topic, doomed[m.Key], err)
		}
		p.result.Count("calls", o.calls)
		p.result.Count("calls on kept connections", o.kept)
	}
	p.result.Count("deaths: outbox", len(doomed))
	p.tell.add(len(doomed))
	return nil
}

// deliver runs a worker until all letters have arrived.
func (p *letters) deliver(ctx context.Context, letters int) (*noting, error) {
	noted := &noting{Sink: p.sink, of: letters, tried: map[string]int{}, arrived: map[string]bool{}, all: make(chan struct{})}
	worker, err := outbox.NewWorker(p.outbox, noted, &outbox.Options{
		// A worker that loses its lease tries again what it could not note, under the same
		// number. So the lease is longer than a process stands still on a busy machine.
		Timeout: 2 * sinkTimeout, Lease: patience, Poll: 10 * time.Millisecond, Batch: 8,
		Backoff: outbox.Backoff{First: 10 * time.Millisecond, Longest: 100 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(running) }()
	select {
	case <-noted.all:
	case <-ctx.Done():
	case <-time.After(time.Duration(letters)*sinkTimeout + patience):
		p.result.Violatef("S11", "", "outbox: %d of %d messages have not arrived", noted.missing(), letters)
	}
	stop()
	return noted, errors.Join(<-ran, ctx.Err())
}

// noting is a sink that notes how often the store says that a message was tried.
type noting struct {
	outbox.Sink
	of  int
	all chan struct{} // closed when so many messages have arrived

	mu      sync.Mutex
	tried   map[string]int
	arrived map[string]bool
}

// Deliver implements [outbox.Sink].
func (n *noting) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	n.mu.Lock()
	for i := range batch {
		n.tried[batch[i].Key] = batch[i].Tries + 1
	}
	n.mu.Unlock()
	receipts := n.Sink.Deliver(ctx, batch)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range receipts {
		if key := batch[i].Key; receipts[i].Err == nil && !n.arrived[key] {
			if n.arrived[key] = true; len(n.arrived) == n.of {
				close(n.all)
			}
		}
	}
	return receipts
}

func (n *noting) tries(key string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tried[key]
}

func (n *noting) missing() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of - len(n.arrived)
}
