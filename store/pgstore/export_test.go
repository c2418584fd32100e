package pgstore

import (
	"io/fs"
	"reflect"
	"strings"
	"time"
)

// Settings returns what a lane sets before its statements: for the session, or
// behind a pooler for each transaction.
func (s *Store) Settings() string {
	if s.pooled {
		return (&link{s: s}).settings("true")
	}
	return (&link{s: s}).settings("false")
}

// A Statement is what a lane sends, and the types of its parameters.
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
	fields := reflect.ValueOf(of).Elem()
	for i := range fields.NumField() {
		if st, ok := reflect.NewAt(fields.Field(i).Type(), fields.Field(i).Addr().UnsafePointer()).Interface().(*statement); ok && !strings.HasPrefix(st.sql, "BEGIN") && st.sql != "COMMIT" {
			all[st.name] = Statement{st.sql, st.oids}
		}
	}
	return all
}

// Age lets time pass for what this handle remembers of the table. The rows are
// the caller's to age.
func (s *Store) Age(d time.Duration) {
	b := &s.back
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved, b.whole = b.moved.Add(-d), b.whole.Add(-d)
	if b.watermark != unfiled {
		b.watermark -= int32(d / time.Second)
	}
}

// Pass lets the watermark pass everything that is due by now.
func (s *Store) Pass() {
	s.back.mu.Lock()
	defer s.back.mu.Unlock()
	s.back.watermark = int32(time.Now().Unix() - epoch + 60)
}

// Rewind is how often the whole table is looked at.
const Rewind = rewind

// SetMigrations replaces the program's migrations, as an upgrade does, and returns
// what undoes it.
func SetMigrations(with fs.FS) (undo func()) {
	was := files
	files = with
	return func() { files = was }
}
