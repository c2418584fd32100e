package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Options are what a [Worker] may be given. Nil and zero values are the defaults.
type Options struct {
	// Concurrency is how many calls of the sink may be under way. Default 16.
	Concurrency int
	// Batch is how many messages one call of the sink gets at most. Default 100.
	Batch int
	// InFlight is how many messages are read at once. At most three times as many are
	// in memory, those whose acknowledgements are being stored included. Default 5,000.
	InFlight int
	// Timeout bounds one call of the sink. Default 10 s.
	Timeout time.Duration
	// Lease is how long a worker holds its shards after the last renewal. It must be
	// longer than twice the Timeout, so that a call ends before another worker can
	// lease the shard. Default 30 s.
	Lease time.Duration
	// Poll is how long an idle worker waits between two reads. Default 500 ms. While
	// messages are found it reads much more often.
	Poll time.Duration
	// MaxTries is after how many tries a message becomes a dead letter. Default 20.
	MaxTries int
	// Backoff is the wait between tries. Default 1 s, doubled up to 30 min.
	Backoff Backoff
	// Horizon is for how long a message is tried, counted from when it was enqueued.
	// Default 20 h.
	Horizon time.Duration
	// Window is how long the receiver remembers a key. After it the receiver would
	// take a message that was sent before for a new one, so the horizon must end
	// before the window does. Default 24 h; negative: the receiver needs no key.
	Window time.Duration
	// KeepReceipts is how long the store keeps a receipt of each delivered message: its
	// id, topic and key, the key that it settled, and the receiver's own name for the
	// effect. Zero keeps none: then nothing is left of a delivered message but the answer
	// of the key that it settled. The store must be a [ReceiptKeeper].
	KeepReceipts time.Duration
	// Tracer follows each try to deliver a message as a span, in the trace that the
	// message's headers name; see package telemetry/otel. Nil: none does.
	Tracer retrysafe.Tracer
	// Logger gets dead letters and failures of the store. Default [slog.Default].
	Logger *slog.Logger
	// Clock and Rand replace time and randomness, for simulation. Rand returns numbers
	// from 0 to 1.
	Clock retrysafe.Clock
	Rand  func() float64
}

func (o Options) withDefaults() Options {
	o.Concurrency, o.Batch, o.InFlight = cmp.Or(o.Concurrency, 16), cmp.Or(o.Batch, 100), cmp.Or(o.InFlight, 5000)
	o.Timeout, o.Lease, o.Poll = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.Poll, 500*time.Millisecond)
	o.MaxTries = cmp.Or(o.MaxTries, 20)
	o.Backoff.First, o.Backoff.Longest = cmp.Or(o.Backoff.First, time.Second), cmp.Or(o.Backoff.Longest, 30*time.Minute)
	o.Horizon, o.Window = cmp.Or(o.Horizon, 20*time.Hour), cmp.Or(o.Window, 24*time.Hour)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = retrysafe.WallClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

func (o *Options) check() error {
	switch {
	case o.Concurrency < 1 || o.Batch < 1 || o.InFlight < 1 || o.MaxTries < 1 || o.Timeout <= 0 || o.Lease <= 0 || o.Poll <= 0 || o.Backoff.First <= 0 || o.Horizon <= 0 || o.KeepReceipts < 0:
		return errors.New("outbox: an option is negative")
	case o.Backoff.Longest < o.Backoff.First:
		return fmt.Errorf("outbox: the longest back-off %v is under the first %v", o.Backoff.Longest, o.Backoff.First)
	case o.Lease <= 2*o.Timeout:
		return fmt.Errorf("outbox: Lease %v is not longer than twice the Timeout %v: a call could outlive the lease", o.Lease, o.Timeout)
	case o.Window > 0 && o.Horizon+o.Backoff.Longest+o.Lease+o.Timeout >= o.Window:
		return fmt.Errorf("outbox: a message may be sent until %v after it was enqueued (Horizon + longest back-off + Lease + Timeout), but its receiver remembers keys for %v; shorten the Horizon",
			o.Horizon+o.Backoff.Longest+o.Lease+o.Timeout, o.Window)
	}
	return nil
}
