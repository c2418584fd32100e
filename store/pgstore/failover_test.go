package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

var inMemory = &testservers.PostgresOptions{InMemory: true}

// A pair is a primary whose commits wait for its standby, and an eye on both.
type pair struct {
	primary *testservers.Postgres
	standby *testservers.Standby
	eye     *pgx.Conn // on the primary
}

func newPair(t *testing.T) *pair {
	t.Helper()
	primary := testservers.NewPostgres(t, inMemory)
	standby := testservers.NewStandby(t, primary, &testservers.StandbyOptions{Synchronous: true})
	return &pair{primary, standby, connect(t, primary.URL("postgres"))}
}

// proxied returns a proxy before the server, and how to get to it.
func proxied(t testing.TB, pg *testservers.Postgres) (*netfault.Proxy, string) {
	t.Helper()
	proxy, err := netfault.New(pg.Addr())
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	address, err := testservers.Via(pg.URL("postgres"), proxy.Addr())
	must(t, err)
	return proxy, address
}

// waiting returns whose commits wait for the standby.
func (p *pair) waiting(t testing.TB) []uint32 {
	t.Helper()
	rows, err := p.eye.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	must(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	must(t, err)
	return pids
}

// still makes sure that commits which waited do so.
func (p *pair) still(t testing.TB, what string, waited []uint32) {
	t.Helper()
	now := p.waiting(t)
	for _, pid := range waited {
		if !slices.Contains(now, pid) {
			t.Errorf("%s: its commit, which waited for the standby, was cancelled", what)
		}
	}
	if len(waited) == 0 {
		t.Errorf("%s: no commit waited", what)
	}
}

// cancel lets every commit that waits for the standby be done without it.
func (p *pair) cancel(t testing.TB) int {
	t.Helper()
	return one[int](t, p.eye, `SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
}

// hasty lets a till give up soon. What works may take longer on a busy machine,
// and is tried again.
var hasty = retrysafe.Options{StoreTimeout: 300 * time.Millisecond, SettleTimeout: 300 * time.Millisecond, Policy: retrysafe.Policy{Lease: patience}}

var hastyStore = &pgstore.Options{Timeout: 500 * time.Millisecond}

// calmStore gives up too, but not before a busy machine has sent what it is asked for.
var calmStore = &pgstore.Options{Timeout: 10 * time.Second}

// A window is a step in which a commit of an operation waits for the standby.
type window struct {
	key, mode string
	early     bool // before the operation, not after it
}

var windows = []window{
	{"reservation", keyed, true},
	{"settlement", keyed, false},
	{"commit of a CompleteTx", inTx, false},
	{"commit of a DoTx", oneCommit, false},
}

// stall pays while the standby stands still, and returns what the caller was told.
// While it waits, meanwhile is called again and again.
func (b *till) stall(t *testing.T, p *pair, w window, meanwhile func()) error {
	t.Helper()
	for _, mode := range modes { // connections are made and statements prepared
		b.finish(t, mode, w.key+": warm up "+mode)
	}
	reached := make(chan struct{}, 1)
	b.within = func() {
		if w.early {
			t.Errorf("%s: the operation runs", w.key)
			return
		}
		if err := p.standby.Pause(); err != nil {
			t.Error(err)
		}
		reached <- struct{}{}
	}
	if w.early {
		must(t, p.standby.Pause())
		reached <- struct{}{}
	}
	told := make(chan error, 1)
	for start := true; ; {
		if start {
			start = false
			go func() {
				_, _, err := b.pay(t.Context(), w.mode, w.key)
				told <- err
			}()
		}
		select {
		case err := <-told:
			if len(reached) > 0 {
				b.within = func() {}
				return err
			}
			start = true // the machine was busy; it was refused before it came so far
		case <-time.After(5 * time.Millisecond):
			if len(reached) > 0 {
				meanwhile()
			}
		}
	}
}

// check makes sure that a call whose commit did not come through was told so, and
// nothing else.
func (w window) check(t *testing.T, err error) {
	t.Helper()
	want := errors.Is(err, retrysafe.ErrUnsettled)
	if w.early { // the key may be busy with its own first try
		want = errors.Is(err, retrysafe.ErrUnavailable) || errors.Is(err, retrysafe.ErrInFlight)
	}
	if !want || retrysafe.IsNotExecuted(err) {
		t.Errorf("%s: while its commit hangs the call gets %v", w.key, err)
	}
}

// recover lets the standby go on, and makes sure that the operation comes to its
// one effect and one answer.
func (b *till) recover(t *testing.T, p *pair, w window) {
	t.Helper()
	must(t, p.standby.Continue())
	eventually(t, "no commit waits any more", func() bool { return len(p.waiting(t)) == 0 })
	b.settled(t)
	ran := false // by one of the tries, all but the last of which a busy machine may cut short
	b.within = func() { ran = true }
	out := b.finish(t, w.mode, w.key)
	b.within = func() {}
	b.audit(t, p.eye, w.mode, w.key, out)
	if w.early != ran {
		t.Errorf("%s: with the standby back, the operation runs: %v", w.key, ran)
	}
}

// A commit that hangs is neither done nor undone. A caller that gave up waiting has
// not cancelled it, and finds out when the standby is back.
func TestW32_CommitThatHangsIsNeitherDoneNorUndone(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	b := newTill(t, open(t, p.primary.URL("postgres"), hastyStore), hasty)
	for _, w := range windows {
		if w.mode == inTx { // the driver cancels what its caller gives up; see below
			continue
		}
		var first []uint32
		look := func() bool {
			if len(first) == 0 {
				first = p.waiting(t)
			}
			return len(first) > 0
		}
		w.check(t, b.stall(t, p, w, func() { look() }))
		eventually(t, "the commit waits", look)
		p.still(t, w.key, first)
		b.recover(t, p, w)
	}
}

// The operation of a CompleteTx returns while its commit hangs.
func TestW32_CompleteTxWhoseCommitHangs(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	b := newTill(t, open(t, p.primary.URL("postgres"), hastyStore), hasty)
	w := window{key: "key", mode: inTx}
	err := b.leaveCommit(t, p, w)
	w.check(t, err)
	b.recover(t, p, w)
}

func TestW32_CompleteTxWhoseCommitHangsIsNotRolledBack(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	b := newTill(t, open(t, p.primary.URL("postgres"), hastyStore), hasty)
	if err := b.leaveCommit(t, p, window{key: "key", mode: inTx}); err == nil || strings.Contains(err.Error(), "rolled back") {
		t.Errorf("while its commit hangs the call gets %v", err)
	}
	must(t, p.standby.Continue())
}

// leaveCommit pays in an operation that does not wait for its commit, which waits
// for the standby.
func (b *till) leaveCommit(t *testing.T, p *pair, w window) error {
	t.Helper()
	b.finish(t, w.mode, "warm up")
	call, r := retrysafe.Call{Ref: refOf(w.key), Operation: w.mode}, retrysafe.Result{Status: 201, Body: []byte("receipt")}
	for {
		left := false
		_, err := b.engines[w.mode].Do(t.Context(), call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := b.Pool().Begin(ctx)
			must(t, err)
			_, err = tx.Exec(ctx, enter, w.key, "receipt")
			must(t, err)
			must(t, x.CompleteTx(ctx, b.Tx(tx), r))
			must(t, p.standby.Pause())
			go func() { _ = tx.Commit(context.Background()) }()
			eventually(t, "the commit waits", func() bool { return len(p.waiting(t)) > 0 })
			left = true
			return r, nil
		})
		if left {
			return err
		}
	}
}

// The wait for the standby is cancelled at the server, again and again, and the
// server says that the commit has succeeded. The store does not believe it before the
// standby has the commit.
func TestW33_CancelledWaitForTheStandbyIsNoCommit(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	proxy, address := proxied(t, pair.primary)
	exec(t, pair.eye, `CREATE DATABASE silent`)
	exec(t, pair.eye, `ALTER DATABASE silent SET client_min_messages = 'error'`)
	for _, c := range []struct{ name, database string }{
		{"own pool", "postgres"}, {"pool of the caller's", "postgres"}, {"warnings are off", "silent"}, {"warnings are lost", "postgres"},
	} {
		t.Run(c.name, func(t *testing.T) { //nolint:paralleltest // the standby stands still for one at a time
			p := *pair
			p.eye = connect(t, p.primary.URL(c.database))
			var s *pgstore.Store
			switch c.name {
			case "pool of the caller's":
				var err error
				s, err = pgstore.New(t.Context(), poolOf(t, p.primary.URL(c.database)), hastyStore)
				must(t, err)
				t.Cleanup(func() { _ = s.Close() })
			case "warnings are lost":
				s = open(t, address, hastyStore)
			default:
				s = open(t, p.primary.URL(c.database), hastyStore)
			}
			b := newTill(t, s, hasty)
			eventually(t, "a reservation that does not wait for the standby is stored", func() bool {
				err := b.relaxed(t.Context(), "warm up, "+c.name)
				return err == nil || errors.Is(err, retrysafe.ErrExists) // a try before it
			})
			for _, w := range windows {
				w.key += ", " + c.name
				cancelled := 0
				cancel := func() bool {
					if len(p.waiting(t)) > 0 && c.name == "warnings are lost" {
						proxy.Strike(netfault.Reset)
					}
					cancelled += p.cancel(t)
					return cancelled > 0
				}
				w.check(t, b.stall(t, &p, w, func() { cancel() }))
				eventually(t, "a wait is cancelled", cancel)
				if w.mode != keyed { // else the server does not lie any more, or we do not look
					eventually(t, "other sessions see the effect", func() bool { cancel(); return len(receipts(t, p.eye, w.key)) == 1 })
				}
				// Other sessions see the effect before the warning has arrived: so long, and no
				// longer, the store may believe it too.
				eventually(t, "the store is in doubt", func() bool { return b.shown(t.Context(), w.key) != nil })
				b.inDoubt(t, w.key)
				b.recover(t, &p, w)
			}
		})
	}
}

// relaxed reserves a key by a commit that does not wait for the standby.
func (b *till) relaxed(ctx context.Context, key string) error {
	r := fresh(key + ", relaxed")
	r.Relaxed = true
	_, err := b.Create(ctx, r)
	return err
}

// shown returns the error of reading a key, within a tenth of a second.
func (b *till) shown(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := b.Load(ctx, refOf(key))
	return err
}

// inDoubt makes sure that no step is answered.
func (b *till) inDoubt(t *testing.T, key string) {
	t.Helper()
	for what, step := range map[string]func(context.Context) error{
		"what may not be on the standby is shown":            func(ctx context.Context) error { return b.shown(ctx, key) },
		"a commit that does not wait for it ended the doubt": func(ctx context.Context) error { return b.relaxed(ctx, key) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := step(ctx); err == nil {
			t.Errorf("%s: %s", key, what)
		}
		cancel()
	}
}

// The connection breaks while its commit waits for the standby. The driver would
// have it cancelled at the server then; a commit of the store's own goes on.
func TestW33_BrokenConnectionDoesNotCancelTheCommit(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	proxy, address := proxied(t, p.primary)
	b := newTill(t, open(t, address, hastyStore), hasty)
	for _, w := range windows {
		if w.mode == inTx {
			continue // the caller's connection is not ours to guard
		}
		var first []uint32
		strike := func() bool {
			if len(first) == 0 {
				if first = p.waiting(t); len(first) > 0 {
					proxy.Strike(netfault.Reset)
				}
			}
			return len(first) > 0
		}
		w.check(t, b.stall(t, p, w, func() { strike() }))
		eventually(t, "the connection of a commit breaks", strike)
		p.still(t, w.key, first)
		b.recover(t, p, w)
	}
}

// A step that is sent again recognises itself only once the standby has it, also
// through a store that has not seen the cancelled wait.
func TestW33_StepRecognisesItselfOnTheStandbyOnly(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	first, second := open(t, p.primary.URL("postgres"), calmStore), open(t, p.primary.URL("postgres"), hastyStore)
	created := fresh("created")
	stored, err := first.Create(t.Context(), fresh("swapped"))
	must(t, err)
	swapped := done(stored, "answer")
	must(t, p.standby.Pause())
	for _, c := range []struct {
		step func(s *pgstore.Store) (retrysafe.Record, error)
		seen string
	}{
		{func(s *pgstore.Store) (retrysafe.Record, error) { return s.Create(t.Context(), created) }, `SELECT count(*) = 2 FROM retrysafe_keys`},
		{func(s *pgstore.Store) (retrysafe.Record, error) { return s.Swap(t.Context(), swapped) }, `SELECT count(DISTINCT state) = 2 FROM retrysafe_keys`},
	} {
		told := make(chan error, 1)
		go func() { _, err := c.step(first); told <- err }()
		eventually(t, "its wait is cancelled, and other sessions see it", func() bool { p.cancel(t); return one[bool](t, p.eye, c.seen) })
		if err := <-told; err == nil {
			t.Error("the first try is confirmed")
		}
		if got, err := c.step(second); err == nil || errors.Is(err, retrysafe.ErrConflict) {
			t.Errorf("the second try gets %v, %v", got.State, err)
		}
	}
	reading := open(t, p.primary.URL("postgres"), hastyStore)
	for range 10 { // from some replays on it reads first
		if _, err := reading.Create(t.Context(), fresh("swapped")); !errors.Is(err, retrysafe.ErrExists) {
			t.Errorf("a replay gets %v", err)
		}
	}
	if got, err := reading.Create(t.Context(), created); err == nil {
		t.Errorf("after replays the second try gets %v", got.State)
	}
	third := open(t, p.primary.URL("postgres"), hastyStore)
	tx, err := third.Pool().Begin(t.Context())
	must(t, err)
	if got, err := third.Tx(tx).Swap(t.Context(), swapped); err == nil || errors.Is(err, retrysafe.ErrConflict) {
		t.Errorf("in a transaction the second try gets %v, %v", got.State, err)
	}
	must(t, p.standby.Continue())
	eventually(t, "the reservation recognises itself", func() bool { _, err := second.Create(t.Context(), created); return err == nil })
	eventually(t, "the settlement meets itself", func() bool {
		got, err := second.Swap(t.Context(), swapped)
		return errors.Is(err, retrysafe.ErrConflict) && got.Result.Equal(swapped.Result)
	})
}

// The limit: a process that has not heard of the cancelled wait shows what may not
// be on the standby. A replay writes nothing, so it does not wait for the standby.
func TestW33_AnotherProcessShowsWhatIsNotOnTheStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	first, second := open(t, p.primary.URL("postgres"), calmStore), open(t, p.primary.URL("postgres"), hastyStore)
	rec, err := first.Create(t.Context(), fresh("key"))
	must(t, err)
	must(t, p.standby.Pause())
	told := make(chan error, 1)
	go func() {
		_, err := first.Swap(t.Context(), done(rec, "answer"))
		told <- err
	}()
	eventually(t, "its commit is cancelled", func() bool { return p.cancel(t) > 0 })
	if err := <-told; err == nil {
		t.Error("the process that heard the warning believes the server")
	}
	eventually(t, "another process shows it", func() bool {
		got, err := second.Create(t.Context(), fresh("key"))
		return errors.Is(err, retrysafe.ErrExists) && got.State == retrysafe.StateCompleted
	})
	must(t, p.standby.Continue())
}

// A client that goes away while its commit waits cancels nothing at the server.
func TestW33_ClientThatGoesAwayCancelsNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := open(t, p.primary.URL("postgres"), &pgstore.Options{Timeout: patience})
	b := newTill(t, s, hasty)
	b.finish(t, oneCommit, "warm up")
	rec, err := s.Create(t.Context(), fresh("swapped"))
	must(t, err)
	must(t, p.standby.Pause())
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, step := range []func() error{
		func() error { _, err := s.Create(ctx, fresh("created")); return err },
		func() error { _, err := s.Swap(ctx, done(rec, "answer")); return err },
		func() error {
			tx, _, err := s.BeginTx(t.Context())
			must(t, err)
			_, err = tx.(retrysafe.CreateCommitter).CreateAndCommit(ctx, fresh("do_tx"))
			return err
		},
	} {
		clients.Go(func() {
			if err := step(); !errors.Is(err, context.Canceled) {
				t.Errorf("a commit that hangs gives %v", err)
			}
		})
	}
	eventually(t, "three commits wait", func() bool { return len(p.waiting(t)) == 3 })
	waited := p.waiting(t)
	leave()
	clients.Wait()
	p.still(t, "a client has gone", waited)
	must(t, p.standby.Continue())
	for _, ref := range []retrysafe.Ref{fresh("created").Ref, rec.Ref, fresh("do_tx").Ref} {
		eventually(t, ref.Key+" is there", func() bool { _, err := s.Load(t.Context(), ref); return err == nil })
	}
}

// Ten times over, the primary is killed under load and its synchronous standby
// takes its place. The clients go on there, and nothing is lost that one of them
// was told of.
func TestW34_FailoverToASynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	primary := testservers.NewPostgres(t, inMemory)
	newTill(t, open(t, primary.URL("postgres"), nil), retrysafe.Options{}) // its tables
	all := newJournal()
	for round := range 10 {
		standby := testservers.NewStandby(t, primary, &testservers.StandbyOptions{Synchronous: true})
		address := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", primary.Addr(), standby.Addr())
		s, err := pgstore.Open(t.Context(), address, nil)
		must(t, err)
		if d, err := s.Durability(t.Context()); err != nil || d.Class != "A" || d.Synchronous != 1 || len(d.Caveats) != 0 {
			t.Errorf("with a synchronous standby Durability is %v, %v", d, err)
		}
		b := newTill(t, s, loaded)
		load := b.load(t, all, fmt.Sprint("failover ", round))
		load.await(t, rand.N(20)+10)
		must(t, primary.Kill())
		must(t, standby.Promote(t.Context()))
		load.stop()
		b.settled(t)
		all.verify(t, b, connect(t, standby.URL("postgres")))
		must(t, s.Close())
		must(t, primary.Close())
		primary = standby.Postgres
	}
	all.report(t)
}

// The limit: an asynchronous standby does not have what was committed last. A
// failover to it loses answers that clients have seen, and runs their operations
// again. The store says so when it is asked.
func TestW34_FailoverToAnAsynchronousStandbyLoses(t *testing.T) {
	t.Parallel()
	primary := testservers.NewPostgres(t, inMemory)
	standby := testservers.NewStandby(t, primary, nil)
	b := newTill(t, open(t, primary.URL("postgres"), nil), retrysafe.Options{})
	d, err := b.Durability(t.Context())
	if err != nil || d.Class != "D" || d.Followers != 1 || !strings.Contains(d.String(), "promoting one loses answers") {
		t.Errorf("with an asynchronous standby Durability is %v, %v; want class D and why", d, err)
	}
	tellsWhatGivesAnswersUp(t, primary)
	b.finish(t, oneCommit, "early")
	must(t, standby.CatchUp(t.Context()))
	must(t, standby.Detach(t.Context()))
	shown := map[string]string{}
	for _, mode := range modes {
		shown[mode] = string(b.finish(t, mode, "late "+mode).Body)
	}
	must(t, primary.Kill())
	must(t, standby.Promote(t.Context()))

	after := newTill(t, open(t, standby.URL("postgres"), &pgstore.Options{Timeout: patience}), *unhurried)
	if out := after.finish(t, oneCommit, "early"); !out.Replayed {
		t.Error("what the standby had is lost too")
	}
	for _, mode := range modes {
		out := after.finish(t, mode, "late "+mode)
		if out.Replayed || string(out.Body) == shown[mode] {
			t.Errorf("%s: an asynchronous standby has lost nothing; the limit that we tell of is none", mode)
		}
	}
}

// tellsWhatGivesAnswersUp fails unless Durability names the settings under which an answer
// can be lost, of a server that has a standby. A quorum of standbys is synchronous.
func tellsWhatGivesAnswersUp(t *testing.T, primary *testservers.Postgres) {
	t.Helper()
	url := primary.URL("postgres")
	durability := func(url string) pgstore.Durability {
		t.Helper()
		d, err := open(t, url, nil).Durability(t.Context())
		must(t, err)
		return d
	}
	for _, setting := range []string{"fsync", "full_page_writes"} {
		must(t, primary.Configure(t.Context(), setting, "off"))
		if d := durability(url); d.Class != "D" || !strings.Contains(d.String(), "; "+setting+" is off") {
			t.Errorf("without %s Durability is %v", setting, d)
		}
		must(t, primary.Configure(t.Context(), setting, ""))
	}
	must(t, primary.Configure(t.Context(), "synchronous_standby_names", "ANY 1 (*)"))
	eventually(t, "the standby is one of a quorum", func() bool {
		d := durability(url)
		return d.Class == "A" && d.Followers == 1 && d.Synchronous == 1 && len(d.Caveats) == 0
	})
	for _, early := range []string{"local", "remote_write"} {
		if d := durability(url + "&synchronous_commit=" + early); d.Class != "D" || !strings.Contains(d.String(), "before the standby has flushed it") {
			t.Errorf("where transactions do not wait for the standby (%s) Durability is %v", early, d)
		}
	}
	must(t, primary.Configure(t.Context(), "synchronous_standby_names", ""))
}

// A doubt that another connection raises while a commit confirms earlier ones is not ended
// by that commit, which may stand before it in the log.
func TestDoubtThatIsRaisedDuringAConfirmationStays(t *testing.T) {
	t.Parallel()
	proxy, s, _ := behindProxy(t, nil)
	must(t, second(s.Create(t.Context(), fresh("before"))))
	s.RaiseDoubt()
	proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
		if c.Dir == netfault.ToServer { // with the step, and with what confirms it
			s.RaiseDoubt()
		}
		return netfault.Verdict{}
	})
	must(t, second(s.Create(t.Context(), fresh("meanwhile"))))
	if !s.InDoubt() {
		t.Error("the commit has ended a doubt that was raised after it was sent")
	}
	proxy.Plan(nil)
	must(t, second(s.Create(t.Context(), fresh("after"))))
	if s.InDoubt() {
		t.Error("the next commit has not ended it")
	}
}
