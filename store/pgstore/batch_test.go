package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// fresh returns a reservation of a key by an owner of its own.
func fresh(key string) retrysafe.Write {
	w := retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments", Version: retrysafe.RecordVersion,
		State: retrysafe.StateInProgress, Attempt: 1, Retain: 24 * time.Hour,
	}}
	_, _ = rand.Read(w.Owner[:])
	return w
}

// done returns the write by which r's owner completes it.
func done(r retrysafe.Record, body string) retrysafe.Write {
	w := r.Update()
	w.State, w.Term, w.Result = retrysafe.StateCompleted, r.Retain, &retrysafe.Result{Status: 201, Body: []byte(body)}
	return w
}

// beat returns the write by which r's owner renews its lease.
func beat(r retrysafe.Record, term time.Duration) retrysafe.Write {
	w := r.Update()
	w.Term = term
	return w
}

// reply is what one step returned.
type reply struct {
	rec retrysafe.Record
	err error
}

// oneByOne opens a store whose batches go one after the other, also on a machine that is so
// busy that commits look slow, and whose queue has room for so many requests.
func oneByOne(t testing.TB, url string, queue int) *pgstore.Store {
	t.Helper()
	s := open(t, url, &pgstore.Options{MaxQueue: queue, Timeout: patience})
	s.SetOverlap(false)
	return s
}

// together sends steps that share one batch: behind a first one that is held
// up until all of them wait. The batcher's queue must have room for just as many. Lead sends
// a step of the key that the gate stands before.
func together(t *testing.T, g *gate, lead func(context.Context) error, steps ...func(context.Context) (retrysafe.Record, error)) []reply {
	t.Helper()
	replies := make([]reply, len(steps))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := lead(t.Context()); err != nil {
			t.Errorf("the step before: %v", err)
		}
	})
	g.held(t)
	for i, step := range steps {
		wg.Go(func() { replies[i].rec, replies[i].err = insist(t.Context(), step) })
	}
	full(t, func(ctx context.Context) error {
		_, err := steps[0](ctx)
		return err
	})
	g.open(t)
	wg.Wait()
	return replies
}

func creates(s *pgstore.Store, records []retrysafe.Write) (steps []func(context.Context) (retrysafe.Record, error)) {
	for _, r := range records {
		steps = append(steps, func(ctx context.Context) (retrysafe.Record, error) { return s.Create(ctx, r) })
	}
	return steps
}

func swaps(s *pgstore.Store, records []retrysafe.Write) (steps []func(context.Context) (retrysafe.Record, error)) {
	for _, r := range records {
		steps = append(steps, func(ctx context.Context) (retrysafe.Record, error) { return s.Swap(ctx, r) })
	}
	return steps
}

// plug creates the key that the gate stands before.
func plug(s *pgstore.Store, g *gate) func(context.Context) error {
	return func(ctx context.Context) error {
		r := fresh(g.ref.Key)
		_, err := s.Create(ctx, r)
		return err
	}
}

// Steps that wait while a batch is under way share the next one: one statement,
// one clock, one commit.
func TestStepsThatWaitTravelTogether(t *testing.T) {
	t.Parallel()
	const members = 40
	url := testservers.Shared(t)
	s := oneByOne(t, url, members)
	var records []retrysafe.Write
	for i := range members {
		records = append(records, fresh(fmt.Sprint(i)))
	}
	replies := together(t, closeGate(t, url, beforeWrite, "first"), func(ctx context.Context) error {
		_, err := s.Create(ctx, fresh("first"))
		return err
	}, creates(s, records)...)
	for i, r := range replies {
		if r.err != nil || r.rec.Ref != records[i].Ref || r.rec.Owner != records[i].Owner {
			t.Fatalf("member %d got %+v, %v", i, r.rec, r.err)
		}
		if r.rec.CreatedAt != replies[0].rec.CreatedAt {
			t.Errorf("member %d travelled apart, at %v and not %v", i, r.rec.CreatedAt, replies[0].rec.CreatedAt)
		}
	}
}

// A caller that leaves a batch that waits, whichever it is, changes no other caller's
// answer.
func TestLeaverAtEveryPlaceOfABatch(t *testing.T) {
	t.Parallel()
	const members = 5
	url := testservers.Shared(t)
	s := oneByOne(t, url, members)
	for place := range members {
		records := make([]retrysafe.Write, members)
		replies := make([]reply, members)
		g := closeGate(t, url, beforeWrite, fmt.Sprint("first ", place))
		var others, leaver sync.WaitGroup
		others.Go(func() {
			if err := plug(s, g)(t.Context()); err != nil {
				t.Errorf("the step before: %v", err)
			}
		})
		g.held(t)
		leaves, leave := context.WithCancel(t.Context())
		for i := range members {
			records[i] = fresh(fmt.Sprintf("%d of %d", i, place))
			ctx, wg := t.Context(), &others
			if i == place {
				ctx, wg = leaves, &leaver
			}
			wg.Go(func() {
				replies[i].rec, replies[i].err = insist(ctx, func(ctx context.Context) (retrysafe.Record, error) { return s.Create(ctx, records[i]) })
			})
		}
		full(t, func(ctx context.Context) error {
			_, err := s.Create(ctx, records[(place+1)%members])
			return err
		})
		leave()
		leaver.Wait()
		g.open(t)
		others.Wait()
		for i, r := range replies {
			switch {
			case i == place && !errors.Is(r.err, context.Canceled):
				t.Errorf("the leaver, member %d, gets %v", i, r.err)
			case i != place && (r.err != nil || r.rec.Ref != records[i].Ref || r.rec.Owner != records[i].Owner):
				t.Errorf("member %d beside a leaver at %d gets %q, %v", i, place, r.rec.Key, r.err)
			}
		}
	}
}

// sane adds a check to the table that refuses a state of zero.
func sane(t *testing.T, url string) {
	t.Helper()
	exec(t, connect(t, url), `ALTER TABLE retrysafe_keys ADD CONSTRAINT sane CHECK (state > 0)`)
}

// One that the server cannot take fails alone. A state of zero is such a one here: a
// check refuses it, and with it the statement of the whole batch.
func TestMemberThatIsRefusedFailsAlone(t *testing.T) {
	t.Parallel()
	const members = 40
	refused := func(i int) bool { return i == 7 || i == 23 }
	check := func(t *testing.T, s *pgstore.Store, want []retrysafe.Write, replies []reply) {
		t.Helper()
		for i, r := range replies {
			var server *pgconn.PgError
			switch {
			case refused(i) && (!errors.As(r.err, &server) || server.ConstraintName != "sane"):
				t.Errorf("member %d cannot be stored and got %v", i, r.err)
			case !refused(i) && r.err != nil:
				t.Errorf("member %d failed with its neighbour: %v", i, r.err)
			case !refused(i):
				if got, err := s.Load(t.Context(), r.rec.Ref); err != nil || got.Revision != r.rec.Revision || got.State != want[i].State || got.Owner != want[i].Owner {
					t.Errorf("member %d is stored as %+v, %v", i, got, err)
				}
			}
		}
	}
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		url := testservers.Shared(t)
		s := oneByOne(t, url, members)
		sane(t, url)
		var records []retrysafe.Write
		for i := range members {
			r := fresh(fmt.Sprint(i))
			if refused(i) {
				r.State = 0
			}
			records = append(records, r)
		}
		g := closeGate(t, url, beforeWrite, "first")
		check(t, s, records, together(t, g, plug(s, g), creates(s, records)...))
	})
	t.Run("swap", func(t *testing.T) {
		t.Parallel()
		url := testservers.Shared(t)
		s := oneByOne(t, url, members)
		sane(t, url)
		first, err := s.Create(t.Context(), fresh("first"))
		must(t, err)
		var records []retrysafe.Write
		for i := range members {
			r, err := s.Create(t.Context(), fresh(fmt.Sprint(i)))
			must(t, err)
			w := done(r, "answer")
			if refused(i) {
				w.State = 0
			}
			records = append(records, w)
		}
		g := closeGate(t, url, beforeWrite, "first")
		check(t, s, records, together(t, g, func(ctx context.Context) error {
			_, err := s.Swap(ctx, done(first, "answer"))
			return err
		}, swaps(s, records)...))
	})
}

// Of many creates of one key in one batch one stores, the same sent twice
// recognises itself, and the others meet what was stored. Of two swaps at one
// revision one is applied.
func TestDuplicatesInOneTrip(t *testing.T) {
	t.Parallel()
	const members = 64
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		url := testservers.Shared(t)
		s := oneByOne(t, url, members)
		var records []retrysafe.Write
		for i := range members / 2 {
			r := fresh(fmt.Sprint("key ", i%4))
			records = append(records, r, r) // each is sent twice
		}
		g := closeGate(t, url, beforeWrite, "first")
		winners := map[retrysafe.Ref]map[retrysafe.Owner]int{}
		replies := together(t, g, plug(s, g), creates(s, records)...)
		for i, r := range replies {
			if r.rec.Ref != records[i].Ref || r.rec.Owner == (retrysafe.Owner{}) {
				t.Fatalf("member %d got %+v, %v", i, r.rec, r.err)
			}
			if winners[r.rec.Ref] == nil {
				winners[r.rec.Ref] = map[retrysafe.Owner]int{}
			}
			switch {
			case r.err == nil && r.rec.Owner == records[i].Owner:
				winners[r.rec.Ref][r.rec.Owner]++
			case errors.Is(r.err, retrysafe.ErrExists) && r.rec.Owner != records[i].Owner:
			default:
				t.Errorf("member %d got owner %v, %v", i, r.rec.Owner, r.err)
			}
		}
		for ref, owners := range winners {
			if len(owners) != 1 {
				t.Errorf("%s was given to %d owners", ref.Key, len(owners))
			}
			for owner, n := range owners {
				if got, err := s.Load(t.Context(), ref); n != 2 || err != nil || got.Owner != owner {
					t.Errorf("%s: %d of two senders of the same step recognise it; stored is %v, %v", ref.Key, n, got.Owner, err)
				}
			}
		}
	})
	t.Run("swap", func(t *testing.T) {
		t.Parallel()
		url := testservers.Shared(t)
		s := oneByOne(t, url, members)
		first, err := s.Create(t.Context(), fresh("first"))
		must(t, err)
		var records []retrysafe.Write
		for i := range members / 4 {
			r, err := s.Create(t.Context(), fresh(fmt.Sprint(i)))
			must(t, err)
			for n := range 4 {
				records = append(records, done(r, fmt.Sprint("answer ", n)))
			}
		}
		g := closeGate(t, url, beforeWrite, "first")
		replies := together(t, g, func(ctx context.Context) error {
			_, err := s.Swap(ctx, done(first, "answer"))
			return err
		}, swaps(s, records)...)
		for i := 0; i < members; i += 4 {
			stored, err := s.Load(t.Context(), records[i].Ref)
			must(t, err)
			wins := 0
			for n, r := range replies[i : i+4] {
				switch {
				case r.err == nil && stored.Result.Equal(records[i+n].Result) && r.rec.Revision == stored.Revision:
					wins++
				case errors.Is(r.err, retrysafe.ErrConflict) && r.rec.Result.Equal(stored.Result) && r.rec.Revision == stored.Revision:
				default:
					t.Errorf("swap %d of one record got %+v, %v; stored is %+v", n, r.rec, r.err, stored)
				}
			}
			if wins != 1 {
				t.Errorf("%d of four swaps at one revision were told that they won", wins)
			}
		}
	})
}

// The ordinary settlement and the ordinary heartbeat, of a short lease and for the
// retention that was announced, have statements of their own. They are fenced like
// any other, alone and among neighbours.
func TestOrdinarySettlementIsFenced(t *testing.T) {
	t.Parallel()
	const good = 6
	url := testservers.Shared(t)
	forge := map[string]func(*retrysafe.Write){
		"another owner":       func(w *retrysafe.Write) { w.Expect.Owner[3]++ },
		"no owner":            func(w *retrysafe.Write) { w.Expect.Owner = retrysafe.Owner{} },
		"an older revision":   func(w *retrysafe.Write) { w.Expect.Revision-- },
		"a later revision":    func(w *retrysafe.Write) { w.Expect.Revision++ },
		"another key":         func(w *retrysafe.Write) { w.Key += "x" },
		"the same in another": func(w *retrysafe.Write) { w.Scope += "x" },
	}
	s := oneByOne(t, url, len(forge)+good)
	for name, step := range map[string]func(retrysafe.Record) retrysafe.Write{
		"settlement": func(r retrysafe.Record) retrysafe.Write { return done(r, "forged") },
		"release": func(r retrysafe.Record) retrysafe.Write {
			w := r.Update()
			w.State, w.Term = retrysafe.StateRetryable, r.Retain
			return w
		},
		"heartbeat": func(r retrysafe.Record) retrysafe.Write {
			w := beat(r, time.Minute)
			w.Reason = "forged"
			return w
		},
	} {
		first, err := s.Create(t.Context(), fresh("first "+name))
		must(t, err)
		var stored []retrysafe.Record
		var sent []retrysafe.Write
		for what, do := range forge {
			r, err := s.Create(t.Context(), fresh(name+" by "+what))
			must(t, err)
			forged := step(r)
			do(&forged)
			if _, err := s.Swap(t.Context(), forged); !errors.Is(err, retrysafe.ErrConflict) && !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("%s with %s: %v", name, what, err)
			}
			stored, sent = append(stored, r), append(sent, forged)
		}
		for i := range good {
			r, err := s.Create(t.Context(), fresh(fmt.Sprint("good ", name, i)))
			must(t, err)
			sent = append(sent, step(r))
		}
		g := closeGate(t, url, beforeWrite, first.Key)
		replies := together(t, g, func(ctx context.Context) error { return second(s.Swap(ctx, done(first, "answer"))) }, swaps(s, sent)...)
		for i, r := range replies {
			if i >= len(stored) {
				if r.err != nil || r.rec.Ref != sent[i].Ref || r.rec.State != sent[i].State {
					t.Errorf("a good %s among forged ones: %+v, %v", name, r.rec, r.err)
				}
				continue
			}
			if !errors.Is(r.err, retrysafe.ErrConflict) && !errors.Is(r.err, retrysafe.ErrNotFound) {
				t.Errorf("%s among others: %v", stored[i].Key, r.err)
			}
			if got, err := s.Load(t.Context(), stored[i].Ref); err != nil || got.Revision != stored[i].Revision || got.State != retrysafe.StateInProgress || got.Owner != stored[i].Owner || got.Reason != "" {
				t.Errorf("%s is now %+v, %v", stored[i].Key, got, err)
			}
		}
	}
}

// If the queue is full a request is refused at once. To the engine that is a store
// that does not answer, and nothing runs.
func TestFullQueueIsUnavailable(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := oneByOne(t, url, 2)
	e, err := retrysafe.New(s, unhurried)
	must(t, err)
	runs := 0
	pay := func(ctx context.Context) error {
		_, err := e.Do(ctx, retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "one too many"}}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			return retrysafe.Result{Status: 201}, nil
		})
		return err
	}
	g := closeGate(t, url, beforeWrite, "first")
	var wg sync.WaitGroup
	wg.Go(func() { _ = plug(s, g)(t.Context()) })
	g.held(t)
	for _, step := range creates(s, []retrysafe.Write{fresh("0"), fresh("1")}) {
		wg.Go(func() {
			if _, err := insist(t.Context(), step); err != nil {
				t.Errorf("one that waits: %v", err)
			}
		})
	}
	full(t, func(ctx context.Context) error {
		_, err := s.Create(ctx, fresh("2"))
		return err
	})
	if err := pay(t.Context()); !errors.Is(err, retrysafe.ErrUnavailable) || !errors.Is(err, groupcommit.ErrFull) || runs != 0 {
		t.Errorf("with a full queue: %v, %d runs; want it refused as unavailable, and not run", err, runs)
	}
	g.open(t)
	wg.Wait()
	if err := pay(t.Context()); err != nil || runs != 1 {
		t.Errorf("with room again: %v, %d runs", err, runs)
	}
}

// A caller that goes while it waits was not sent. One that goes while its step is
// on the way is not heard of again, but the step ends as if it had stayed.
func TestCallerThatGoesEndsNoTrip(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := oneByOne(t, url, 2)
	g := closeGate(t, url, beforeWrite, "sent")
	ctx, leave := context.WithCancel(t.Context())
	var gone, stay sync.WaitGroup
	goes := func(step func(context.Context) (retrysafe.Record, error)) {
		gone.Go(func() {
			if _, err := insist(ctx, step); !errors.Is(err, context.Canceled) {
				t.Errorf("one that has gone: %v", err)
			}
		})
	}
	r := fresh("sent")
	steps := creates(s, []retrysafe.Write{r, fresh("queued"), fresh("stays")})
	goes(steps[0])
	g.held(t)
	goes(steps[1])
	stay.Go(func() {
		if _, err := insist(t.Context(), steps[2]); err != nil {
			t.Errorf("a neighbour: %v", err)
		}
	})
	full(t, func(ctx context.Context) error {
		_, err := s.Create(ctx, fresh("too many"))
		return err
	})
	leave()
	gone.Wait()
	g.open(t)
	stay.Wait()
	got, err := s.Create(t.Context(), r)
	if err != nil || got.Owner != r.Owner {
		t.Errorf("the step that was sent is lost: %+v, %v", got, err)
	}
	if _, err := s.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: "queued"}); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("a step that was never sent is stored: %v", err)
	}
}

// A commit that hangs holds up its own key and no other.
func TestCommitThatHangsHoldsUpNoNeighbour(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	slow, s := open(t, url, &pgstore.Options{Timeout: patience}), open(t, url, nil)
	g := closeGate(t, url, beforeCommit, "slow")
	r := fresh("slow")
	hangs := make(chan reply, 1)
	go func() {
		got, err := slow.Create(t.Context(), r)
		hangs <- reply{got, err}
	}()
	g.held(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			got, err := s.Create(t.Context(), fresh(fmt.Sprint(i)))
			if err == nil {
				_, err = s.Swap(t.Context(), done(got, "answer"))
			}
			if err != nil {
				t.Errorf("a neighbour: %v", err)
			}
		})
		if i%50 == 0 {
			wg.Go(func() {
				if _, err := s.Create(t.Context(), fresh("slow")); !errors.Is(err, retrysafe.ErrBusy) {
					t.Errorf("the key whose commit hangs: %v, want ErrBusy", err)
				}
			})
		}
	}
	wg.Wait()
	select {
	case got := <-hangs:
		t.Fatalf("it was to hang: %v", got.err)
	default:
	}
	g.open(t)
	if got := <-hangs; got.err != nil {
		t.Error(got.err)
	}
	if got, err := s.Create(t.Context(), fresh("slow")); !errors.Is(err, retrysafe.ErrExists) || got.Owner != r.Owner {
		t.Errorf("after the commit: %v, %v", got.Owner, err)
	}
}

// A step waits for no large one, neither for a reservation with its request nor for an
// answer.
func TestStepsDoNotWaitForLargeOnes(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, &pgstore.Options{Timeout: patience})
	reserved, err := s.Create(t.Context(), fresh("large answer"))
	if err != nil {
		t.Fatal(err)
	}
	request := fresh("large request")
	request.Request = make([]byte, 65<<10)
	large := []func(context.Context) (retrysafe.Record, error){
		func(ctx context.Context) (retrysafe.Record, error) { return s.Create(ctx, request) },
		func(ctx context.Context) (retrysafe.Record, error) {
			return s.Swap(ctx, done(reserved, strings.Repeat("x", 65<<10)))
		},
	}
	for i, key := range []string{"large request", "large answer"} {
		g := closeGate(t, url, beforeWrite, key)
		stored := make(chan error, 1)
		go func() {
			_, err := large[i](t.Context())
			stored <- err
		}()
		g.held(t)
		got, err := s.Create(t.Context(), fresh("small beside "+key))
		if err == nil {
			_, err = s.Swap(t.Context(), done(got, "answer"))
		}
		if err != nil {
			t.Errorf("beside the %s: %v", key, err)
		}
		select {
		case err := <-stored:
			t.Fatalf("the %s was to be held: %v", key, err)
		default:
		}
		g.open(t)
		if err := <-stored; err != nil {
			t.Errorf("the %s: %v", key, err)
		}
	}
}

// Batches from several nodes over the same keys do not wait for each other in a
// circle, and of all requests for a key, or for a revision of it, one succeeds.
func TestBatchesOfSeveralNodesNeverDeadlock(t *testing.T) {
	t.Parallel()
	const rounds, keys, nodes = 10, 300, 3
	url := testservers.Shared(t)
	conn := connect(t, url)
	// By default the batches give up waiting long before the server looks for circles.
	exec(t, conn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 1', current_database()); END $$`)
	var stores []*pgstore.Store
	for range nodes {
		stores = append(stores, open(t, url, &pgstore.Options{Timeout: patience}))
	}
	// rush lets every node take the same step for every key at the same time, each
	// in an order of its own, and counts the successes of each key.
	rush := func(what string, refused error, step func(s *pgstore.Store, key int) error) (wins [keys]int32) {
		var won [keys]atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, s := range stores {
			for _, key := range mrand.Perm(keys) {
				wg.Go(func() {
					<-start
					switch err := unlessBusy(func() error { return step(s, key) }); {
					case err == nil:
						won[key].Add(1)
					case !errors.Is(err, refused):
						t.Errorf("%s: %v", what, err)
					}
				})
			}
		}
		close(start)
		wg.Wait()
		for key := range wins {
			if wins[key] = won[key].Load(); wins[key] > 1 {
				t.Errorf("%s of one key was done for %d", what, wins[key])
			}
		}
		return wins
	}
	total := int32(0)
	for round := range rounds {
		name := func(key int) string { return fmt.Sprint(round, " ", key) }
		rush("create", retrysafe.ErrExists, func(s *pgstore.Store, key int) error {
			return second(s.Create(t.Context(), fresh(name(key))))
		})
		var stored [keys]retrysafe.Record
		for key := range keys {
			var err error
			stored[key], err = stores[0].Load(t.Context(), fresh(name(key)).Ref)
			must(t, err)
		}
		for _, n := range rush("swap", retrysafe.ErrConflict, func(s *pgstore.Store, key int) error {
			return second(s.Swap(t.Context(), done(stored[key], "answer")))
		}) {
			total += n
		}
	}
	if total != rounds*keys {
		t.Errorf("%d of %d keys were completed", total, rounds*keys)
	}
	if n := one[int](t, conn, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// A store that is closed has ended what was under way, takes no further step and
// leaves no connection.
func TestClosedStoreIsQuiet(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, err := pgstore.Open(t.Context(), url+"&application_name=quiet", nil)
	must(t, err)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for n := range 20 {
				if got, err := s.Create(t.Context(), fresh(fmt.Sprint(i, n))); err == nil {
					_, _ = s.Swap(t.Context(), done(got, "answer"))
					_, _ = s.Load(t.Context(), got.Ref)
				}
			}
		})
	}
	// All that has connections of its own has made one.
	relaxed := fresh("relaxed")
	relaxed.Relaxed = true
	must(t, second(s.Create(t.Context(), relaxed)))
	must(t, second(s.Outbox().Depth(t.Context())))
	_, _, err = s.Changes(t.Context(), "")
	must(t, err)
	conn := connect(t, url)
	eventually(t, "it is at work", func() bool { return one[int](t, conn, `SELECT count(*) FROM retrysafe_keys`) > 0 })
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
	box, late := s.Outbox(), fresh("late")
	announced := late
	announced.Announce = true
	for what, err := range map[string]error{
		"create": second(s.Create(t.Context(), late)), "load": second(s.Load(t.Context(), late.Ref)),
		"swap": second(s.Swap(t.Context(), late)), "announced swap": second(s.Swap(t.Context(), announced)),
		"list": second(s.List(t.Context(), retrysafe.Query{})), "list of what is due": second(s.List(t.Context(), retrysafe.Query{Due: true})),
		"count": second(s.Count(t.Context(), "tenant")), "purge": second(s.Purge(t.Context(), 1)),
		"changes": func() error { _, _, err := s.Changes(t.Context(), ""); return err }(),
		"lease":   second(box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)), "depth": second(box.Depth(t.Context())),
	} {
		if !errors.Is(err, pgstore.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
	eventually(t, "no connection is left", func() bool {
		return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'quiet'`) == 0
	})
	runtime.KeepAlive(s) // or the collector would close what Close has not
}

func second[T any](_ T, err error) error { return err }

// ignore returns err unless it is the one that was to be expected.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
