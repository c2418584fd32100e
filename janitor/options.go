package janitor

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Options are what all duties have in common. Nil and zero values are the defaults.
type Options struct {
	// Every is how long the duty rests between two passes. The default is the
	// duty's own.
	Every time.Duration
	// Batch is how many records are read, or deleted, in one step of the store.
	// The default is the duty's own.
	Batch int
	// Workers is how many records are seen to at once. Default 8.
	Workers int
	// StoreTimeout bounds one step of the store. Default 10 s.
	StoreTimeout time.Duration
	// Observer is told what becomes of records.
	Observer retrysafe.Observer
	// Logger gets what is done to records, with their keys hashed, and what goes
	// wrong. Default slog.Default().
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
