package janitor

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Options are the options that all duties share. Nil and zero values select the
// defaults.
type Options struct {
	// Every is the pause between two passes. The default depends on the duty.
	Every time.Duration
	// Batch is how many records one store operation reads or deletes. The default
	// depends on the duty.
	Batch int
	// Workers is how many records are processed at once. Default 8.
	Workers int
	// StoreTimeout bounds one store operation. Default 10 s.
	StoreTimeout time.Duration
	// Observer gets an event for each record that is changed.
	Observer retrysafe.Observer
	// Tracer follows each question of a reconciler as a span; see package telemetry/otel.
	// Nil: none does.
	Tracer retrysafe.Tracer
	// Logger gets changes of records, with their keys hashed, and errors. Default
	// slog.Default().
	Logger *slog.Logger
	// Clock and Rand replace time and randomness, for simulation. Rand returns
	// numbers from 0 to 1.
	Clock retrysafe.Clock
	Rand  func() float64
}

// withDefaults returns o with every value that is not set replaced by its default.
func (o Options) withDefaults(every time.Duration, batch int) Options {
	o.Every = orDefault(o.Every, every)
	o.Batch = orDefault(o.Batch, batch)
	o.Workers = orDefault(o.Workers, 8)
	o.StoreTimeout = orDefault(o.StoreTimeout, 10*time.Second)
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

func orDefault[T cmp.Ordered](v, def T) T {
	var zero T
	if v <= zero {
		return def
	}
	return v
}
