package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/janitor"
)

const (
	unknownsName = "unknowns" // of the duty, in logs and as a label

	// unknownsTurn is how often the duty runs. So the first reading is soon after the
	// start; most other turns are too early for another one.
	unknownsTurn = 2 * time.Second
	// unknownsEvery is the shortest time between two readings of the store.
	unknownsEvery = 30 * time.Second
	// unknownsShare is the largest share of the time, as one in so many, that readings
	// take: after a long one the next ones are left out.
	unknownsShare = 20
	// unknownsTimeout bounds one reading. With the share it also bounds the time between
	// two readings, to seven minutes.
	unknownsTimeout = 20 * time.Second
	// unknownsMost is how many records are read.
	unknownsMost = 100_000
	// unknownsStale is when a reading is too old to be shown.
	unknownsStale = 15 * time.Minute
)

// Unknowns adds the unknown outcomes of a store as a source: how many there are by the
// class of their reason, the age of the oldest, dead letters and disputed ones. Give the
// duty to [janitor.Run]: it reads the store every half minute, less often if that takes
// long. A scrape shows the last reading and costs the store nothing. One process for each
// store is enough.
//
// A reading ends after 100,000 records or 20 seconds. Then there are more than it says.
//
// The logger gets failures; nil is slog.Default(). Forget removes the source; end the
// duty before.
func (m *Metrics) Unknowns(s retrysafe.Store, logger *slog.Logger) (duty janitor.Duty, forget func()) {
	u := &unknowns{store: s, logger: logger, since: time.Now()}
	return u, m.pull.watch(u.counts, u.gauges)
}

// unknowns reads the unknown outcomes of a store.
type unknowns struct {
	store  retrysafe.Store
	logger *slog.Logger
	since  time.Time

	mu               sync.Mutex
	passes, failures uint64
	took             time.Duration // of the last reading, whether it succeeded or not
	ended            time.Time
	last             *unknownCounts // nil before the first success
}

// unknownCounts are the counts of one reading.
type unknownCounts struct {
	at             time.Time // by this machine's clock
	byClass        map[string]int
	read           int
	dead, disputed int
	oldest         time.Duration // zero if there is none
}

// Schedule implements [janitor.Duty].
func (u *unknowns) Schedule() janitor.Schedule {
	return janitor.Schedule{Name: unknownsName, Every: unknownsTurn, Logger: u.logger}
}

// RunOnce implements [janitor.Duty]. It reads the store if it is time to, and changes no
// record.
func (u *unknowns) RunOnce(ctx context.Context) (int, error) {
	u.mu.Lock()
	early := time.Since(u.ended) < max(unknownsEvery, unknownsShare*u.took)
	u.mu.Unlock()
	if early {
		return 0, nil
	}
	began := time.Now()
	counts, err := u.readStore(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = time.Now()
	u.took = u.ended.Sub(began)
	u.passes++
	switch {
	case err == nil:
		counts.at = u.ended
		u.last = counts
	case ctx.Err() != nil: // the process stops
	default:
		u.failures++
	}
	return 0, err
}

// readStore counts the unknown outcomes of the store, page by page.
func (u *unknowns) readStore(ctx context.Context) (*unknownCounts, error) {
	if u.store == nil {
		return nil, fmt.Errorf("%s: there is no store to read", unknownsName)
	}
	within, cancel := context.WithTimeout(ctx, unknownsTimeout)
	defer cancel()
	c := &unknownCounts{byClass: make(map[string]int, len(failreason.Classes))}
	q := retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}, Limit: unknownsPage}
	for {
		list, err := u.store.List(within, q)
		if err != nil && c.read > 0 && within.Err() != nil && ctx.Err() == nil {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: list unknown outcomes: %w", unknownsName, err)
		}
		for i := range list {
			c.add(&list[i])
		}
		if len(list) < q.Limit || c.read >= unknownsMost {
			return c, nil
		}
		q.After = list[len(list)-1].Ref
		q.Limit = min(nextPage(list), unknownsMost-c.read)
	}
}

// unknownsPage is the size of the first page, and of the smallest.
const unknownsPage = 100

// nextPage returns how many records to list next, by how large those of the page before
// are. Large pages are faster: for each page of unknown outcomes PostgreSQL reads and
// sorts all of them.
func nextPage(list []retrysafe.Record) int {
	const memory = 16 << 20
	size := 0
	for i := range list {
		r := &list[i]
		size += 1<<10 + len(r.Request) + len(r.Checkpoint.Data)
		if r.Result != nil {
			size += len(r.Result.Body)
		}
	}
	return min(max(memory/(size/len(list)), unknownsPage), retrysafe.MaxList)
}

// add counts a record. One that cannot be read may be in any state, and the duties count
// it.
func (c *unknownCounts) add(r *retrysafe.Record) {
	c.read++
	if !r.Readable() || r.IsSystem() || r.State != retrysafe.StateUnknown {
		return
	}
	c.byClass[failreason.Class(r.Reason)]++
	if r.Inquiry.Dead {
		c.dead++
	}
	if r.Inquiry.Disputed {
		c.disputed++
	}
	c.oldest = max(c.oldest, r.ReadAt.Sub(r.UnknownSince()), 1) // 0 would say that there is none
}

// counts reads the passes, under the names that those of other duties have.
func (u *unknowns) counts(r reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r.add(passes, float64(u.passes), unknownsName)
	r.add(failures, float64(u.failures), unknownsName)
}

// gauges reads the last reading. One that is too old is left out, so that an alert is not
// kept from firing, or firing, by what is no longer so.
func (u *unknowns) gauges(r reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.last
	if c == nil {
		r.add(lastSuccess, timestamp(time.Time{}, u.since), unknownsName)
		return
	}
	r.add(lastSuccess, timestamp(c.at, u.since), unknownsName)
	age := time.Since(c.at)
	if age > unknownsStale {
		return
	}
	for _, class := range failreason.Classes {
		r.add(unknownOutcomes, float64(c.byClass[class]), class)
	}
	r.add(unknownDead, float64(c.dead))
	r.add(unknownDisputed, float64(c.disputed))
	oldest := 0.0
	if c.oldest > 0 {
		oldest = (c.oldest + age).Seconds()
	}
	r.add(unknownOldest, oldest)
}
