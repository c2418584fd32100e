package tenant

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A keyring holds the issuer's keys as they were last read. If they cannot be read
// again it goes on with those.
type keyring struct {
	source  *source
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[keySet] // nil until they were read once

	mu      sync.Mutex
	reading *reading  // under way, or nil
	asked   time.Time // when a token last was a reason to read
	failure error     // of the last reading
}

// A reading is one look at the source. Its error may be read when it is done.
type reading struct {
	done chan struct{}
	err  error
}

const (
	maxReading = 10 * time.Second // in the background
	maxWaiting = 2 * time.Second  // while a request waits
	askPause   = 10 * time.Second // between two readings that tokens are the reason for
)

var errSlow = errors.New("it takes too long")

// ask reads the keys because of a token that none of them fits. Made-up tokens must not
// cause a request to the issuer each: requests share one fetch, with a pause before the
// next. An error says that the keys may be out of date.
func (k *keyring) ask(ctx context.Context) error {
	k.mu.Lock()
	if other := k.reading; other != nil {
		k.mu.Unlock()
		return other.wait(ctx)
	}
	if now := k.now(); k.asked.IsZero() || now.Sub(k.asked) >= askPause {
		k.asked = now
	} else {
		defer k.mu.Unlock()
		return k.failure
	}
	mine := k.begin()
	k.mu.Unlock()

	// The others need the keys also when this client hangs up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWaiting)
	defer cancel()
	return k.finish(ctx, mine)
}

// refresh reads the keys, after a fetch that is under way.
func (k *keyring) refresh(ctx context.Context) error {
	for {
		k.mu.Lock()
		other := k.reading
		if other == nil {
			break
		}
		k.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	mine := k.begin()
	k.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, maxReading)
	defer cancel()
	return k.finish(ctx, mine)
}

// wait returns when the reading is done, or is not worth waiting for.
func (r *reading) wait(ctx context.Context) error {
	late := time.NewTimer(maxWaiting)
	defer late.Stop()
	select {
	case <-r.done:
		return r.err
	case <-late.C:
		return errSlow
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin is called with the lock held.
func (k *keyring) begin() *reading {
	k.reading = &reading{done: make(chan struct{}), err: errSlow}
	return k.reading
}

// finish does the reading.
func (k *keyring) finish(ctx context.Context, r *reading) error {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.reading = nil
		if !errors.Is(r.err, context.Canceled) { // a cancelled fetch is no failure
			k.failure = r.err
		}
		close(r.done)
	}()
	r.err = k.load(ctx)
	return r.err
}

// load reads the keys and tells the log what became of them. A set with the same
// bytes is the same set.
func (k *keyring) load(ctx context.Context) error {
	old := k.current.Load()
	raw, err := k.source.read(ctx)
	if err == nil && old != nil && bytes.Equal(raw, old.raw) {
		return nil
	}
	var set *keySet
	var leftOut []error
	if err == nil {
		set, leftOut, err = parseKeySet(raw)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		what := "retrysafe: the issuer's keys cannot be read, those of before stay in use"
		if old == nil {
			what = "retrysafe: the issuer's keys cannot be read, no token can be accepted"
		}
		k.log.LogAttrs(ctx, slog.LevelError, what, slog.String("jwks", k.source.where), slog.String("error", err.Error()))
		return err
	}
	for _, why := range leftOut {
		k.log.LogAttrs(ctx, slog.LevelWarn, "retrysafe: a key of the issuer is left out",
			slog.String("jwks", k.source.where), slog.String("reason", why.Error()))
	}
	level := slog.LevelInfo
	if len(set.keys) == 0 {
		level = slog.LevelError // no token can be accepted
	}
	k.log.LogAttrs(ctx, level, "retrysafe: the issuer has new keys", slog.String("jwks", k.source.where), slog.Int("keys", len(set.keys)))
	k.current.Store(set)
	return nil
}
