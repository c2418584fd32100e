package dynamostore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// A permit lets a process take steps on the table. DynamoDB has no write that depends on
// more than one item without paying for both, so a step cannot compare the note of a move.
// Instead a process reads the note, and may take steps for as long as the permit that it
// got thereby lasts. It renews the permit when half of that time is over. The outcome of a
// step is reported only if the process has a permit when the reply is there.
//
// So a mover that has changed the note has to wait until all permits from before are over.
// After that no outcome is reported that the mover does not find in the table: a step that
// is carried out later, by a process that was stopped for a while, returns an error, and
// nothing runs.
type permit struct {
	mu   sync.Mutex // held by the step that renews the permit
	last atomic.Pointer[granted]
}

// granted is what a process knows of its permit.
type granted struct {
	asked time.Time     // when the note was asked for
	date  time.Time     // the service's, when the note was read
	lease time.Duration // how long the permit lasts
	// followed is when a move began to follow the table, or zero. While it does, nothing is
	// purged: the table has no log that would tell the mover.
	followed time.Time
}

const (
	// defaultLease is how long a permit lasts.
	defaultLease = 5 * time.Second
	// maxMargin is how much longer than a permit lasts a mover waits: the Date of a response
	// is cut to the second, and may be a second late.
	maxMargin = 4 * time.Second
)

// age returns how old the permit is. A machine that was suspended has clocks that may have
// stood still; the Date of the last response has not.
func (g *granted) age(c *clock) time.Duration {
	age := max(time.Since(g.asked), time.Now().Round(0).Sub(g.asked.Round(0)))
	return max(age, c.latestDate().Sub(g.date)-time.Second)
}

// waits returns how long a mover waits until no process has a permit of this duration.
func waits(lease time.Duration) time.Duration { return lease + min(lease, maxMargin) }

// permitted calls do if the process has a permit, and returns what do returned if it has
// one then.
func permitted[T any](ctx context.Context, s *Store, do func() (T, error)) (T, error) {
	var none T
	if err := s.permit.ask(ctx, s); err != nil {
		return none, err
	}
	v, err := do()
	if g := s.permit.last.Load(); g != nil && g.age(s.clock) < g.lease {
		return v, err
	}
	if err := s.permit.ask(ctx, s); err != nil {
		return none, err
	}
	return v, err
}

// ask returns nil if the process has a permit. It renews an old one.
func (p *permit) ask(ctx context.Context, s *Store) error {
	g := p.last.Load()
	valid := false
	if g != nil {
		age := g.age(s.clock)
		if age < g.lease/2 {
			return nil
		}
		valid = age < g.lease
	}
	if !valid {
		p.mu.Lock()
		if now := p.last.Load(); now != nil && now.age(s.clock) < now.lease/2 { // another step has renewed it
			p.mu.Unlock()
			return nil
		}
	} else if !p.mu.TryLock() {
		return nil // another step renews it
	}
	defer p.mu.Unlock()
	asked := time.Now()
	self, err := s.self(ctx)
	if err != nil {
		if valid && g.age(s.clock) < g.lease {
			return nil
		}
		return fmt.Errorf("read whether the table is being moved: %w", s.explain(err))
	}
	if len(self) == 0 {
		p.last.Store(nil)
		return fmt.Errorf("the item that describes table %s is gone; was the table emptied?", s.table)
	}
	err = p.grant(s, self, asked)
	if k, bad := noteOf(self); bad == nil && k.Overdue(s.clock.now()) {
		// The mover was killed in its cut: this process gives the move up.
		_, err = storemove.Change(ctx, mover{s}, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) {
			if !k.Overdue(now) {
				return *k, storemove.ErrCut // the mover goes on, or another process was faster
			}
			return k.Stay(k.Seq)
		})
		if err == nil {
			p.last.Store(&granted{asked: asked, date: s.clock.latestDate(), lease: leaseOf(self)})
		}
	}
	return err
}

// grant sets the permit by the item that describes the table. An error says why the table
// is closed.
func (p *permit) grant(s *Store, self item, asked time.Time) error {
	k, err := noteOf(self)
	switch {
	case err != nil:
	case k.Closed() != nil:
		err = fmt.Errorf("table %s: %w", s.table, k.Closed())
	case !k.CutEnds.IsZero():
		err = fmt.Errorf("table %s: %w", s.table, storemove.ErrCut)
	default:
		g := &granted{asked: asked, date: s.clock.latestDate(), lease: leaseOf(self)}
		if k.Part == storemove.Followed {
			g.followed = k.At
		}
		p.last.Store(g)
		return nil
	}
	p.last.Store(nil)
	return err
}

// purges reports whether the permit allows to delete records.
func (p *permit) purges(s *Store) bool {
	g := p.last.Load()
	return g != nil && (g.followed.IsZero() || s.clock.now().Sub(g.followed) > followFor)
}

// noteOf returns the note of a move that the item which describes the table has.
func noteOf(self item) (storemove.Kept, error) {
	text, _ := self[attrMove].(*types.AttributeValueMemberS)
	if text == nil {
		return storemove.Kept{}, nil
	}
	return storemove.DecodeKept(text.Value)
}

// leaseOf returns how long a permit lasts.
func leaseOf(self item) time.Duration {
	d := decoder{it: self}
	if ms := d.number(attrLease); d.err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return defaultLease
}
