package pgstore

import (
	"context"
	"io/fs"
	"reflect"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// MaxFlights is how many batches of one kind overlap at most.
const MaxFlights = maxFlights

// Settings returns the statement that a connection sends before the others: for the
// session, or behind a pooler for each transaction.
func (s *Store) Settings() string {
	if s.pgBouncer {
		return (&conn{s: s}).settings("true")
	}
	return (&conn{s: s}).settings("false")
}

// SetLockPatience is for tests in which a step may wait longer for the table.
func (s *Store) SetLockPatience(d time.Duration) { s.lockPatience = d }

// A Statement is the SQL of a statement, and the types of its parameters.
type Statement struct {
	SQL  string
	OIDs []uint32
}

// Statements returns every statement by its name, but for those that begin and end
// transactions.
func (s *Store) Statements() map[string]Statement {
	return statementsOf(&s.sql)
}

// Statements returns every statement of the outbox by its name.
func (b *Outbox) Statements() map[string]Statement { return statementsOf(&b.sql) }

func statementsOf(of any) map[string]Statement {
	all := map[string]Statement{}
	for _, st := range fieldsOf(of) {
		if !strings.HasPrefix(st.sql, "BEGIN") && st.sql != "COMMIT" && st.sql != "ROLLBACK" {
			all[st.name] = Statement{st.sql, st.oids}
		}
	}
	return all
}

// fieldsOf returns the fields of a struct that are statements, in their order.
func fieldsOf(of any) (all []*statement) {
	fields := reflect.ValueOf(of).Elem()
	for i := range fields.NumField() {
		if st, ok := reflect.NewAt(fields.Field(i).Type(), fields.Field(i).Addr().UnsafePointer()).Interface().(*statement); ok {
			all = append(all, st)
		}
	}
	return all
}

// Age lets time pass for what this handle remembers of the table. The rows are
// the caller's to age.
func (s *Store) Age(d time.Duration) {
	b := &s.background
	b.state.Lock()
	defer b.state.Unlock()
	b.moved, b.rewound = b.moved.Add(-d), b.rewound.Add(-d)
	if b.watermark != noWatermark {
		b.watermark -= int32(d / time.Second)
	}
}

// Pass lets the watermark pass everything that is due by now.
func (s *Store) Pass() {
	s.background.state.Lock()
	defer s.background.state.Unlock()
	s.background.watermark = int32(time.Now().Unix() - slotEpoch + 60)
}

// Watermark is what the store knows of the slots: below it all rows are final.
func (s *Store) Watermark() int32 {
	watermark, _ := s.background.last()
	return watermark
}

// HoldDuties lets no statement of a duty begin until release is called.
func (s *Store) HoldDuties() (release func()) {
	s.background.mu.Lock()
	return s.background.mu.Unlock
}

// Rewind is how often all slots are looked at.
const Rewind = rewind

// SetMigrations replaces the program's migrations, as an upgrade does, and returns
// what undoes it.
func SetMigrations(with fs.FS) (undo func()) {
	was := files
	files = with
	return func() { files = was }
}

// ChangeWait is the interval at which changes are read where nothing notifies of them.
const ChangeWait = changeWait

// SetOverlap makes batches overlap from the second on, or never, whatever commits take, and
// the server count as near, whatever the way to it takes. It is for before the first step.
func (s *Store) SetOverlap(always bool) {
	decide := func(time.Duration, time.Duration, bool) bool { return always }
	near := func(time.Duration, time.Duration, bool) bool { return false }
	s.reserves.batcher.Overlap, s.settles.batcher.Overlap = decide, decide
	s.reserves.batcher.Distant, s.settles.batcher.Distant = near, near
}

// OwnConnections is how many connections the store has for its own steps, used and idle.
func (s *Store) OwnConnections() int {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return s.conns.used + len(s.conns.idle)
}

// IdleConnections is how many of them are open and idle.
func (s *Store) IdleConnections() (n int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for _, c := range s.conns.idle {
		if c.isOpen() {
			n++
		}
	}
	return n
}

// IsFull reports whether the server has refused the store a further connection.
func (s *Store) IsFull() bool { return !s.conns.mayGrow(time.Now()) }

// RaiseDoubt raises a doubt, as the warning of another connection does.
func (s *Store) RaiseDoubt() { s.doubt.raise() }

// InDoubt reports whether there is a doubt.
func (s *Store) InDoubt() bool { return s.doubt.open() }

// WhyRefused is what an acknowledgement says of a key that it has not settled.
func (b *Outbox) WhyRefused(ctx context.Context, w retrysafe.Write) outbox.AckResult {
	t := newEndStatement(1, func(int) *outbox.Ack { return &outbox.Ack{Settle: &w} })
	t.keys = make([]outbox.AckResult, 1)
	if err := t.find(ctx, b, []int{0}); err != nil {
		return outbox.AckResult{Err: err}
	}
	return t.keys[0]
}
