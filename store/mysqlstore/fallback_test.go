package mysqlstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// A logBuffer keeps what was logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines returns how many lines contain a text.
func (b *logBuffer) lines(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// A step that does not get by with one round trip is logged with its cause, once for each
// cause, and without the text of a statement.
func TestFallbacksAreLoggedOnce(t *testing.T) {
	t.Parallel()
	logged := new(logBuffer)
	s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience, Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r, err := s.Create(t.Context(), fresh("stale"))
	must(t, err)
	must(t, second(s.Swap(t.Context(), done(r, "secret answer"))))
	if n := logged.lines(""); n != 0 {
		t.Errorf("%d lines are logged of steps that took one round trip: %s", n, logged.text.String())
	}
	holder, _, err := s.BeginTx(t.Context())
	must(t, err)
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Reserve(t.Context(), refOf("held")); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatal(err)
	}
	for range 3 {
		other, _, err := s.BeginTx(t.Context())
		must(t, err)
		if _, err := other.Reserve(t.Context(), refOf("held")); !errors.Is(err, retrysafe.ErrBusy) {
			t.Errorf("Reserve of a held key = %v", err)
		}
		must(t, other.Rollback(t.Context()))
		if _, err := s.Swap(t.Context(), done(r, "secret answer")); !errors.Is(err, retrysafe.ErrConflict) {
			t.Errorf("a stale swap = %v", err)
		}
	}
	for _, want := range []string{
		`a reservation in one round trip, which goes by single statements instead; logged once for each cause" cause="another transaction has locked a key"`,
		`a swap in one statement, which goes by single statements instead; logged once for each cause" cause="a record is not as its caller expects it"`,
	} {
		if n := logged.lines(want); n != 1 {
			t.Errorf("%d lines, want one: %s\n%s", n, want, logged.text.String())
		}
	}
	if n := logged.lines("INSERT"); n != 0 || logged.lines("level=DEBUG") != 2 {
		t.Errorf("logged is more than two lines of level debug without a statement:\n%s", logged.text.String())
	}
}
