package mysqlstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A tap notes what clients ask a server for.
type tap struct {
	mu    sync.Mutex
	asked []string
}

const comQuery = 3

func (p *tap) plan(c netfault.Chunk) netfault.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	for data := c.Data; c.Dir == netfault.ToServer && len(data) > 5; {
		size := int(binary.LittleEndian.Uint32(data) & 0xffffff)
		end := min(4+size, len(data))
		if data[4] == comQuery {
			p.asked = append(p.asked, string(data[5:end]))
		}
		data = data[end:]
	}
	return netfault.Verdict{}
}

func (p *tap) take() (asked []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, p.asked = p.asked, nil
	return asked
}

// Each step of a store on MariaDB is one round trip, and one statement if it comes alone. A
// whole operation in one commit
// takes two more than a transaction without retrysafe, and one for each end of it.
func TestStepsTakeFewRoundTrips(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	proxy, err := netfault.New(addrOf(t, dsn))
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	s := open(t, through(t, dsn, proxy.Addr()), nil)
	batched := open(t, through(t, dsn, proxy.Addr()), nil)
	batched.SendLoneStepsAsBatches()
	b := newTill(t, s, *unhurried)
	must(t, second(s.Create(t.Context(), fresh("warm"))))
	must(t, second(batched.Create(t.Context(), fresh("warm too"))))
	_, _, err = b.pay(t.Context(), oneCommit, "the first commit, which the engine looks for in its store")
	must(t, err)
	p := new(tap)
	proxy.Plan(p.plan)
	took := func(step string, trips, statements int) {
		t.Helper()
		asked := p.take()
		n := 0
		for _, text := range asked {
			n += 1 + strings.Count(text, ";")
		}
		if len(asked) != trips || n != statements {
			t.Errorf("%s took %d statements in %d round trips, want %d in %d:\n%s", step, n, len(asked), statements, trips, strings.Join(asked, "\n"))
		}
	}
	r, err := batched.Create(t.Context(), fresh("batched"))
	must(t, err)
	took("a batch of reservations", 1, 5)
	must(t, second(batched.Swap(t.Context(), done(r, "answer"))))
	took("a batch of answers", 1, 5)
	r, err = s.Create(t.Context(), fresh("key"))
	must(t, err)
	took("a reservation", 1, 1)
	must(t, second(s.Swap(t.Context(), done(r, "answer"))))
	took("an answer", 1, 1)
	if _, err := s.Create(t.Context(), fresh("key")); err != nil { // its own
		t.Error(err)
	}
	took("a reservation of a key that exists, and its read", 2, 2)
	if _, err := s.Create(t.Context(), fresh("key")); err != nil {
		t.Error(err)
	}
	took("the next one, which is read first", 1, 1)
	_, out, err := b.pay(t.Context(), oneCommit, "one commit")
	if must(t, err); out.Replayed {
		t.Error("a fresh key was replayed")
	}
	took("one commit: begin, reservation, the effect, answer, a look whether it is still open, commit", 6, 16)
}

// A batch in one round trip is applied as a whole or not at all. If one of its steps is to be
// refused, that one is refused and the others are applied, and a swap of a key that does not
// exist leaves no row behind.
func TestRefusedStepsOfABatchLeaveTheOthersAlone(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience})
	const each = 12
	var reserved, stale []retrysafe.Record
	for i := range each {
		r, err := s.Create(t.Context(), fresh(fmt.Sprint("good ", i)))
		must(t, err)
		reserved = append(reserved, r)
		r, err = s.Create(t.Context(), fresh(fmt.Sprint("stale ", i)))
		must(t, err)
		must(t, second(s.Swap(t.Context(), done(r, "first"))))
		stale = append(stale, r)
	}
	var all sync.WaitGroup
	for i := range each {
		want := func(what string, want error, step func(context.Context, retrysafe.Write) (retrysafe.Record, error), w retrysafe.Write) {
			all.Go(func() {
				if _, err := step(t.Context(), w); !errors.Is(err, want) {
					t.Errorf("%s %d: %v, want %v", what, i, err, want)
				}
			})
		}
		missing := fresh(fmt.Sprint("missing ", i)).Record
		missing.Revision = 1
		want("good", nil, s.Swap, done(reserved[i], "answer"))
		want("stale", retrysafe.ErrConflict, s.Swap, done(stale[i], "second"))
		want("missing", retrysafe.ErrNotFound, s.Swap, done(missing, "answer"))
		want("new", nil, s.Create, fresh(fmt.Sprint("new ", i)))
		other := fresh(fmt.Sprint("stale ", i))
		other.Owner[15]++
		want("taken", retrysafe.ErrExists, s.Create, other)
	}
	all.Wait()
	for i := range each {
		for key, answer := range map[string]string{"good": "answer", "stale": "first"} {
			r, err := s.Load(t.Context(), refOf(fmt.Sprint(key, " ", i)))
			must(t, err)
			if r.Result == nil || string(r.Result.Body) != answer {
				t.Errorf("%s %d has %v, want %q", key, i, r.Result, answer)
			}
		}
	}
	if n := one[int](t, s.DB(), `SELECT COUNT(*) FROM retrysafe_keys`); n != 3*each {
		t.Errorf("%d rows are there, want %d: no key that was not created", n, 3*each)
	}
}

// What a caller sends of the attempt besides its answer is not stored by a swap, and the
// record that it returns is the stored one.
func TestSwapReturnsWhatIsStored(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	created, err := s.Create(t.Context(), fresh("key"))
	must(t, err)
	w := done(created, "answer")
	w.Operation, w.Attempt, w.CreatedAt = "POST /refunds", 7, w.CreatedAt.Add(-patience)
	got, err := s.Swap(t.Context(), w)
	must(t, err)
	stored, err := s.Load(t.Context(), w.Ref)
	must(t, err)
	for _, r := range []retrysafe.Record{got, stored} {
		if r.Operation != created.Operation || r.Attempt != 1 || !r.CreatedAt.Equal(created.CreatedAt) {
			t.Errorf("the record is %q, attempt %d, of %v; want what the reservation has stored", r.Operation, r.Attempt, r.CreatedAt)
		}
	}
	if got.Revision != stored.Revision || !got.Deadline.Equal(stored.Deadline) || !got.UpdatedAt.Equal(stored.UpdatedAt) {
		t.Errorf("Swap has returned %+v, and stored is %+v", got, stored)
	}
	// The same by the ordinary way, in one round trip.
	r, err := s.Create(t.Context(), fresh("plain"))
	must(t, err)
	got, err = s.Swap(t.Context(), done(r, "answer"))
	must(t, err)
	stored, err = s.Load(t.Context(), r.Ref)
	must(t, err)
	if got.Revision != stored.Revision || !got.Deadline.Equal(stored.Deadline) || !got.UpdatedAt.Equal(stored.UpdatedAt) || !got.CreatedAt.Equal(stored.CreatedAt) || got.Owner != stored.Owner {
		t.Errorf("Swap has returned %+v, and stored is %+v", got, stored)
	}
}

// With the statements for MySQL, which MariaDB understands too. The rules about steps that
// come together and about transactions are held here again.
func TestContractWithMySQLsStatements(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if !strings.Contains(t.Name(), "one_kind") && !strings.Contains(t.Name(), "set_back") && !strings.Contains(t.Name(), "transaction") && !strings.Contains(t.Name(), "reserve") {
			t.Skip("TestContract holds it")
		}
		dsn := testservers.SharedMariaDB(t)
		s := open(t, dsn, nil)
		s.SpeakMySQL()
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, dsn, nil)},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, _, err := s.BeginTx(ctx)
				return tx, err
			},
			Damage: damageOf(t, s), SetBack: setBackOf(t, s),
		}
	})
}
