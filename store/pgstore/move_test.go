package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

var mover = retrysafe.Owner{7}

// names are the keys of what Written or Retire tells of.
func names(written []retrysafe.Record, gone []retrysafe.Ref) (all []string) {
	for _, r := range written {
		all = append(all, r.Key)
	}
	for _, ref := range gone {
		all = append(all, "no "+ref.Key)
	}
	slices.Sort(all)
	return all
}

// retire retires s and returns what was left to copy.
func retire(ctx context.Context, s *pgstore.Store) (rest []string, err error) {
	err = s.Mover().Retire(ctx, mover, "elsewhere", func(_ context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
		rest = append(rest, names(written, gone)...)
		return nil
	})
	return rest, err
}

// moveHarness is a schema of a database of its own, and what it says of a move.
func moveHarness(t *testing.T, schema string) movetest.Harness {
	t.Helper()
	url := testservers.Shared(t)
	conn := connect(t, url)
	return movetest.Harness{
		Open: func(ctx context.Context, moving bool) (movetest.Store, error) {
			s, err := pgstore.Open(ctx, url, &pgstore.Options{Schema: schema, Moving: moving})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			if !moving { // as in a process that sweeps: what is imported is above its watermark
				_, err = s.List(ctx, retrysafe.Query{Due: true})
			}
			return s, err
		},
		Begin: func(ctx context.Context, s movetest.Store) (retrysafe.Tx, error) {
			own := s.(*pgstore.Store)
			tx, err := own.Pool().Begin(ctx)
			if err != nil {
				return nil, err
			}
			return own.Tx(tx), nil
		},
		Exec: func(t *testing.T, statement string) {
			t.Helper()
			exec(t, conn, statement)
		},
		Outbox: func(s movetest.Store) outbox.Store { return s.(*pgstore.Store).Outbox() },
		Purge: func(t *testing.T, s movetest.Store, due [2]retrysafe.Ref) {
			t.Helper()
			eventually(t, "a purge deletes both", func() bool {
				must(t, second(s.Purge(t.Context(), 10)))
				_, first := s.Load(t.Context(), due[0])
				_, second := s.Load(t.Context(), due[1])
				return errors.Is(first, retrysafe.ErrNotFound) && errors.Is(second, retrysafe.ErrNotFound)
			})
		},
		Triggers: func(t *testing.T) int {
			t.Helper()
			return one[int](t, conn, `SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'retrysafe%'`)
		},
		ExpireLog: func(t *testing.T) {
			t.Helper()
			function := one[string](t, conn, `SELECT pg_get_functiondef('retrysafe_write'::regproc)`)
			exec(t, conn, regexp.MustCompile(`< \d+`).ReplaceAllString(function, "< 1000"))
		},
		Missed: func(t *testing.T) int { // the log has no other rows
			t.Helper()
			return one[int](t, conn, `SELECT count(*) FROM retrysafe_written`)
		},
	}
}

func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "Payments' \"$write$\""} {
		movetest.FollowNotesEveryWrite(t, moveHarness(t, schema))
	}
}

func TestFollowEndsByItself(t *testing.T) {
	t.Parallel()
	movetest.FollowEndsByItself(t, moveHarness(t, ""))
}

func TestFillIsOneRuns(t *testing.T) {
	t.Parallel()
	movetest.FillIsOneRuns(t, moveHarness(t, ""))
}

func TestImportKeepsRecords(t *testing.T) {
	t.Parallel()
	movetest.ImportKeepsRecords(t, moveHarness(t, ""))
}

func TestMovingOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	movetest.MovingOpensWhatIsClosed(t, moveHarness(t, ""))
}

func TestRetireIsUndone(t *testing.T) {
	t.Parallel()
	movetest.RetireIsUndone(t, moveHarness(t, ""))
}

func TestFillIsUndone(t *testing.T) {
	t.Parallel()
	movetest.FillIsUndone(t, moveHarness(t, ""))
}

func TestMessagesStay(t *testing.T) {
	t.Parallel()
	movetest.MessagesStay(t, moveHarness(t, ""))
}

// What was written behind more purged keys than Retire takes at a time is handed over too.
func TestRetireGoesOnBehindPurgedKeys(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	must(t, second(s.Mover().Follow(t.Context(), mover)))
	before := one[int64](t, conn, `SELECT coalesce(max(revision), 0) FROM retrysafe_keys`)
	store := func(what string, n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := s.Create(t.Context(), fresh(fmt.Sprintf("%s %d", what, i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	store("purged", 1200)
	exec(t, conn, fmt.Sprintf(`DELETE FROM retrysafe_keys WHERE revision > %d`, before))
	store("behind", 200)
	rest, err := retire(t.Context(), s)
	must(t, err)
	left := slices.DeleteFunc(rest, func(name string) bool { return strings.HasPrefix(name, "no ") })
	if len(left) != 200 {
		t.Errorf("%d keys that were written behind the purged ones are left to copy, want 200", len(left))
	}
}

// A record that was written and cannot be read, or whose deletion cannot, ends the copy and
// stays in the log: it is not left behind in silence.
func TestUnreadableRecordDoesNotMove(t *testing.T) {
	t.Parallel()
	for what, statement := range map[string]string{
		"a record":   `UPDATE retrysafe_keys SET tail = set_byte(tail, 0, 255 - get_byte(tail, 0))`,
		"a deletion": `UPDATE retrysafe_keys SET head = set_byte(head, 9, 255 - get_byte(head, 9)); DELETE FROM retrysafe_keys`,
	} {
		url := testservers.Shared(t)
		s, conn := open(t, url, nil), connect(t, url)
		must(t, second(s.Mover().Follow(t.Context(), mover)))
		must(t, second(s.Create(t.Context(), fresh("k"))))
		exec(t, conn, statement)
		logged := one[int](t, conn, `SELECT count(*) FROM retrysafe_written`)
		if written, gone, err := s.Mover().Written(t.Context(), mover, 10); !errors.Is(err, retrysafe.ErrUnreadable) || written != nil || gone != nil {
			t.Errorf("%s: Written = %v, %v, %v", what, written, gone, err)
		}
		if rest, err := retire(t.Context(), s); !errors.Is(err, retrysafe.ErrUnreadable) || rest != nil {
			t.Errorf("%s: Retire = %v, %v", what, rest, err)
		}
		if n := one[int](t, conn, `SELECT count(*) FROM retrysafe_written`); n != logged {
			t.Errorf("%s: %d of %d entries are left in the log", what, n, logged)
		}
	}
}

// A step of a move that waits for a transaction ends with its context.
func TestStepOfAMoveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	must(t, second(s.Tx(tx).Create(t.Context(), fresh("held"))))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- second(s.Mover().Follow(ctx, mover)) }()
	for _, waits := range []bool{true, false} { // it lets others go on
		eventually(t, "the step waits for the transaction", func() bool {
			return len(ended) > 0 || one[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE NOT l.granted AND l.mode = 'AccessExclusiveLock' AND d.datname = current_database())`) == waits
		})
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v", err)
	}
	must(t, tx.Commit(t.Context()))
	if n := one[int](t, conn, `SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'retrysafe%'`); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// This is movetest.RetireWaitsForTransactions with the caller's own writes in the
// transactions and DoTx as the one that commits.
func TestRetireWaitsForTransactions(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	must(t, second(b.store.Mover().Follow(t.Context(), mover)))
	late, err := b.store.Pool().Begin(t.Context())
	must(t, err)
	must(t, second(late.Exec(t.Context(), book, "late", "late")))

	begun, end := make(chan struct{}), make(chan struct{})
	booked := make(chan error, 1)
	go func() {
		_, err := b.doTx(t.Context(), "early", func(context.Context, pgx.Tx) error {
			close(begun)
			<-end
			return nil
		})
		booked <- err
	}()
	<-begun
	type outcome struct {
		rest []string
		err  error
	}
	retired := make(chan outcome, 1)
	go func() {
		rest, err := retire(t.Context(), open(t, url, nil))
		retired <- outcome{rest, err}
	}()
	eventually(t, "the cut waits for the transaction", func() bool {
		return one[bool](t, b.conn, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')`)
	})
	close(end)
	if err := <-booked; err != nil {
		t.Errorf("a transaction that was there before: %v", err)
	}
	if got := <-retired; got.err != nil || strings.Join(got.rest, ", ") != "early" {
		t.Errorf("left to copy: %q, %v", got.rest, got.err)
	}
	if _, err := b.store.Tx(late).Create(t.Context(), fresh("late")); err == nil {
		t.Error("a transaction that came too late has stored its answer")
	}
	if err := late.Commit(t.Context()); err == nil {
		t.Error("a transaction that came too late has committed")
	}
	if got := b.booked(t, "early"); got != "doTx" {
		t.Errorf("booked %q", got)
	}
	if got := b.booked(t, "late"); got != "" {
		t.Errorf("booked %q", got)
	}
}

// What a transaction has written and not yet committed is waited for: a message of it keeps
// the store from being retired, and a key of it keeps the store from being filled.
func TestMoveWaitsForWhatItLooksFor(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		write func(tx *pgstore.Tx) error
		step  func(s *pgstore.Store) error
		want  error
	}{
		"a message and Retire": {
			func(tx *pgstore.Tx) error { return tx.Enqueue(t.Context(), outbox.Message{Topic: "t"}) },
			func(s *pgstore.Store) error { return second(retire(t.Context(), s)) }, storemove.ErrUndelivered,
		},
		"a key and Fill": {
			func(tx *pgstore.Tx) error { return second(tx.Create(t.Context(), fresh("early"))) },
			func(s *pgstore.Store) error {
				return s.Mover().Fill(t.Context(), mover, retrysafe.Owner{9}, "elsewhere")
			}, storemove.ErrNotEmpty,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := testservers.Shared(t)
			s, conn := open(t, url, nil), connect(t, url)
			if c.want == storemove.ErrUndelivered { //nolint:errorlint // the row's own
				must(t, second(s.Mover().Follow(t.Context(), mover)))
			}
			tx, err := s.Pool().Begin(t.Context())
			must(t, err)
			must(t, c.write(s.Tx(tx)))
			ended := make(chan error, 1)
			go func() { ended <- c.step(s) }()
			for _, waits := range []bool{true, false, true} { // it lets others go on, and tries again
				eventually(t, "the step waits for the transaction, and again", func() bool {
					return len(ended) > 0 || one[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
						WHERE NOT l.granted AND l.mode = 'AccessExclusiveLock' AND d.datname = current_database())`) == waits
				})
			}
			must(t, tx.Commit(t.Context()))
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("the step ends with %v, want %v", err, c.want)
			}
		})
	}
}

// A store that was once to be moved itself, and was not, can be filled, also by a run that
// begins again. A store in another schema of the database has no part in that.
func TestStoreThatWasFollowedIsFilled(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	m, beside := open(t, url, nil).Mover(), open(t, url, &pgstore.Options{Schema: "beside"})
	must(t, second(m.Follow(t.Context(), mover)))
	must(t, m.Unfollow(t.Context(), mover))
	for _, run := range []retrysafe.Owner{{1}, {2}} {
		must(t, m.Fill(t.Context(), run, retrysafe.Owner{9}, "elsewhere"))
		must(t, m.Import(t.Context(), run, []retrysafe.Record{fresh("k").Record}, nil))
	}
	must(t, second(beside.Mover().Follow(t.Context(), mover)))
	must(t, m.Filled(t.Context(), retrysafe.Owner{2}))
}

// The steps of a move have settings of their own, whatever the database's defaults are: they
// wait for locks briefly, a long one is not cut short, their commits are flushed, each
// statement sees what was committed before it, and the server ends them when the process
// that moves is gone.
func TestStepsOfAMoveHaveTheirOwnSettings(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	conn := connect(t, url)
	s := open(t, url+"&default_transaction_isolation=serializable&statement_timeout=600000&synchronous_commit=local", nil)
	exec(t, conn, `CREATE TABLE seen (settings text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO seen SELECT concat_ws(', ', current_setting('lock_timeout'), current_setting('statement_timeout'),
				current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit'), current_setting('transaction_isolation')); RETURN NEW; END $$;
		CREATE TRIGGER note BEFORE INSERT ON retrysafe_keys FOR EACH ROW EXECUTE FUNCTION note()`)
	must(t, s.Mover().Fill(t.Context(), mover, retrysafe.Owner{9}, "elsewhere"))
	must(t, s.Mover().Import(t.Context(), mover, []retrysafe.Record{fresh("k").Record}, nil))
	if got := one[string](t, conn, `SELECT settings FROM seen`); got != "100ms, 0, 30s, on, read committed" {
		t.Errorf("lock_timeout, statement_timeout, idle_in_transaction_session_timeout, synchronous_commit, isolation: %s", got)
	}
}

// A role that may use the keys and nothing else is followed, and is told where they
// went. It cannot move them.
func TestRolesInAMove(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	role := newRole(t, conn)
	exec(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON retrysafe_keys, retrysafe_outbox, retrysafe_dead, retrysafe_shards, retrysafe_workers TO `+role+`; GRANT SELECT ON retrysafe_schema TO `+role)
	clerk := open(t, as(t, url, role), nil)
	for name, err := range map[string]error{"Follow": second(clerk.Mover().Follow(t.Context(), mover)), "Fill": clerk.Mover().Fill(t.Context(), mover, mover, "elsewhere")} {
		if err == nil || !strings.Contains(err.Error(), "run it as the owner of the tables") {
			t.Errorf("%s = %v", name, err)
		}
	}
	must(t, second(s.Mover().Follow(t.Context(), mover)))
	if safe := one[bool](t, conn, `SELECT prosecdef AND proconfig = '{"search_path=pg_catalog, pg_temp"}' FROM pg_proc WHERE proname = 'retrysafe_write'`); !safe {
		t.Error("what logs the writes has the rights of its owner, and not a search path of its own")
	}
	must(t, second(clerk.Create(t.Context(), fresh("of a clerk"))))
	rest, err := retire(t.Context(), s)
	if err != nil || strings.Join(rest, ", ") != "of a clerk" {
		t.Errorf("left to copy: %q, %v", rest, err)
	}
	if _, err := clerk.Create(t.Context(), fresh("too late")); !errors.Is(err, pgstore.ErrMoved) {
		t.Errorf("Create = %v", err)
	}
	if _, err := pgstore.Open(t.Context(), as(t, url, role), nil); !errors.Is(err, pgstore.ErrMoved) {
		t.Errorf("Open = %v", err)
	}
	again := open(t, url, &pgstore.Options{Moving: true})
	if by, err := again.Mover().Retired(t.Context()); err != nil || by != mover {
		t.Errorf("Retired = %v, %v", by, err)
	}
}
