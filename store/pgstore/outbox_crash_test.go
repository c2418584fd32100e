package pgstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/internal/test/standstill"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// What a child is told, by its environment: where to deliver, and from which
// database.
const (
	envPost    = "RETRYSAFE_POST_WHERE"
	envPostDB  = "RETRYSAFE_POST_DB"
	envPatient = "RETRYSAFE_POST_PATIENT"
)

// How long a worker has its shards: a moment, or long enough for a test to do something
// meanwhile on a busy machine. For a good third of that it waits for an answer.
const (
	shortLease = 3 * time.Second
	longLease  = 15 * time.Second
)

// runPost is all that a child does: it delivers until it is killed, and says how many
// of its endings were refused.
func runPost(where string) int {
	ctx := context.Background()
	s, err := pgstore.Open(ctx, os.Getenv(envPostDB), nil)
	if err == nil {
		var w *outbox.Worker
		lease := shortLease
		if os.Getenv(envPatient) != "" {
			lease = longLease
		}
		if w, err = newPostman(s, where, lease); err == nil {
			go func() {
				for ; ; time.Sleep(10 * time.Millisecond) {
					if n := w.Stats().Fenced; n > 0 {
						_ = post(ctx, where+"/fenced", "", nil)
					}
				}
			}()
			err = w.Run(ctx)
		}
	}
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		return 1
	}
	return 0
}

// newPostman returns a worker that posts to where.
func newPostman(s *pgstore.Store, where string, lease time.Duration) (*outbox.Worker, error) {
	return newWorker(s, lease, outbox.SinkFunc(func(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
		return outbox.Receipt{Err: post(ctx, where, d.Key, d.Payload)}
	}))
}

func newWorker(s *pgstore.Store, lease time.Duration, sink outbox.Sink) (*outbox.Worker, error) {
	return outbox.NewWorker(s.Outbox(), sink, &outbox.Options{
		Batch: 3, Timeout: lease * 2 / 5, Lease: lease, Poll: 10 * time.Millisecond, MaxTries: 1 << 20,
		Backoff: outbox.Backoff{First: 5 * time.Millisecond, Longest: 50 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
}

func post(ctx context.Context, where, key string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// A depot receives messages, refuses some, and has a process killed now and then.
type depot struct {
	mu     sync.Mutex
	first  []string          // texts, in the order in which they came for the first time
	keys   map[string]string // text → key
	texts  map[string]string // key → text
	wrong  []string
	count  int
	every  int // after how many messages that came for the first time a process is killed
	kill   chan struct{}
	over   <-chan struct{} // closed when the test has ended
	fenced atomic.Bool
	// inbox, if not nil, applies each message to the table applied.
	inbox *inbox.Inbox[pgx.Tx]
}

func newDepot(t *testing.T, every int) (*depot, string) {
	t.Helper()
	d := &depot{keys: map[string]string{}, texts: map[string]string{}, every: every, kill: make(chan struct{}), over: t.Context().Done()}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return d, server.URL
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	if r.URL.Path == "/fenced" {
		d.fenced.Store(true)
		return
	}
	text, key := base64.StdEncoding.EncodeToString(body), r.Header.Get("Idempotency-Key")
	taken, deadly := d.take(text, key)
	if deadly { // it is not passed over, however busy the killer is
		select {
		case d.kill <- struct{}{}:
		case <-d.over:
		}
	}
	if !taken || d.apply(text, key) != nil {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}
}

// apply applies a message, also when its sender has been killed meanwhile.
func (d *depot) apply(text, key string) error {
	if d.inbox == nil {
		return nil
	}
	_, err := d.inbox.Once(context.Background(), inbox.Message{Scope: "orders", Key: key, Payload: []byte(text)}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO applied VALUES ($1)`, text)
		return err
	})
	return err
}

// take notes a message, unless it refuses it, and says whether a process is to be
// killed now.
func (d *depot) take(text, key string) (taken, deadly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if rand.IntN(30) == 0 {
		return false, false
	}
	was, known := d.keys[text]
	if !known {
		if other, used := d.texts[key]; used || key == "" {
			d.wrong = append(d.wrong, fmt.Sprintf("%s and %s came under %q", text, other, key))
		}
		d.first = append(d.first, text)
		d.keys[text], d.texts[key] = key, text
		// Not counted by deliveries: a slow machine delivers again what it was slow to
		// deliver, and each kill makes it slower.
		deadly = len(d.first)%d.every == 0
	} else if was != key {
		d.wrong = append(d.wrong, fmt.Sprintf("%s came under %q and %q", text, was, key))
	}
	return true, deadly
}

func (d *depot) arrived() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.first)
}

// check compares what came with what committed.
func (d *depot) check(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	rows, err := conn.Query(t.Context(), `SELECT line, texts FROM orders ORDER BY n`)
	must(t, err)
	want, of := map[string][]string{}, map[string]string{}
	var group, texts string
	must(t, second(pgx.ForEachRow(rows, []any{&group, &texts}, func() error {
		for text := range strings.FieldsSeq(texts) {
			want[group] = append(want[group], text)
			of[text] = group
		}
		return nil
	})))
	got := map[string][]string{}
	for _, text := range d.first {
		group, committed := of[text]
		if !committed {
			t.Errorf("%s came, and its transaction did not commit", text)
		}
		got[group] = append(got[group], text)
	}
	for group := range want {
		if group == "" {
			slices.Sort(want[group])
			slices.Sort(got[group])
		}
		if !slices.Equal(got[group], want[group]) {
			t.Errorf("group %q: %d messages came, in the order\n%.500v\nwant %d\n%.500v", group, len(got[group]), got[group], len(want[group]), want[group])
		}
	}
	for _, wrong := range d.wrong {
		t.Error(wrong)
	}
}

// A clerk writes orders with their messages, one after the other, in groups that no
// other clerk writes to.
type clerk struct {
	s    *pgstore.Store
	db   *sql.DB
	name string
}

// order writes one order with the messages of it, as one; some are taken back, and
// some commit when others have overtaken them.
func (c *clerk) order(ctx context.Context) error {
	group := ""
	if n := rand.IntN(3); n > 0 {
		group = fmt.Sprint(c.name, " ", n)
	}
	var texts []string
	var messages []outbox.Message
	for range 1 + rand.IntN(3) {
		payload := make([]byte, 12+rand.IntN(40))
		for i := range payload {
			payload[i] = byte(rand.IntN(256))
		}
		texts = append(texts, base64.StdEncoding.EncodeToString(payload))
		messages = append(messages, outbox.Message{Topic: "order", Group: group, Payload: payload})
	}
	const insert = `INSERT INTO orders (line, texts) VALUES ($1, $2)`
	text := strings.Join(texts, " ")
	tx, write, commit, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if err := write(insert, group, text); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	if err := tx.Enqueue(ctx, messages...); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	if rand.IntN(10) == 0 {
		time.Sleep(rand.N(30 * time.Millisecond)) // late
	}
	if rand.IntN(4) == 0 {
		return tx.Rollback(ctx)
	}
	return commit(ctx)
}

// begin begins a transaction of any kind.
func (c *clerk) begin(ctx context.Context) (tx outbox.Transaction, write func(sql string, args ...any) error, commit func(context.Context) error, err error) {
	native := func(tx pgx.Tx) func(string, ...any) error {
		return func(sql string, args ...any) error { return second(tx.Exec(ctx, sql, args...)) }
	}
	switch rand.IntN(3) {
	case 0:
		plain, err := c.s.Pool().Begin(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		return c.s.Tx(plain), native(plain), plain.Commit, nil
	case 1:
		plain, err := c.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		return c.s.SQLTx(plain), func(sql string, args ...any) error { return second(plain.ExecContext(ctx, sql, args...)) },
			func(context.Context) error { return plain.Commit() }, nil
	default:
		tx, own, err := c.s.BeginTx(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		return own.(outbox.Transaction), native(own), tx.Commit, nil
	}
}

const ordersTable = `CREATE TABLE orders (n bigint GENERATED ALWAYS AS IDENTITY, line text NOT NULL, texts text NOT NULL)`

// drained reports whether nothing waits in the outbox.
func drained(t *testing.T, s *pgstore.Store) func() bool {
	return func() bool {
		depth, err := s.Outbox().Depth(t.Context())
		return err == nil && depth.Waiting == 0
	}
}

var transactions = flag.Int("transactions", 3_000, "how many transactions enqueue messages beside workers that are killed; a release: 10,000")

// TestW64_OutboxRowIffCommit: a message arrives if and only if its transaction
// committed, in the order of its group, with the same bytes and under one key, while
// workers are killed with -9 all the time; and a receiver with an inbox applies it
// once.
func TestW64_OutboxRowIffCommit(t *testing.T) {
	t.Parallel()
	const clerks, workers = 16, 3
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	exec(t, conn, ordersTable)
	d, where := newDepot(t, 400)
	exec(t, conn, `CREATE TABLE applied (text text)`)
	applied, err := inbox.PGX(s.Pool(), "depot", nil)
	must(t, err)
	must(t, applied.Migrate(t.Context()))
	d.inbox = applied
	db := stdlib.OpenDBFromPool(s.Pool())
	t.Cleanup(func() { _ = db.Close() })

	start := func() *osexec.Cmd {
		cmd := osexec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envPost+"="+where, envPostDB+"="+url)
		cmd.Stderr = t.Output()
		must(t, cmd.Start())
		return cmd
	}
	var children [workers]*osexec.Cmd
	for i := range children {
		children[i] = start()
	}
	var producers sync.WaitGroup
	for c := range clerks {
		producers.Go(func() {
			clerk := &clerk{s, db, fmt.Sprint("clerk ", c)}
			for range *transactions / clerks {
				if err := clerk.order(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { producers.Wait(); close(done) }()
	killed, empty := 0, drained(t, s)
	whileMoving(t, d.arrived, "everything is delivered", func() bool {
		select {
		case <-d.kill:
			i := rand.IntN(workers)
			_ = children[i].Process.Kill()
			_ = children[i].Wait()
			children[i] = start()
			killed++
			return false // the next one may wait already
		default:
		}
		select {
		case <-done:
			return empty()
		default:
			return false
		}
	})
	for _, cmd := range children {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	producers.Wait()
	d.check(t, conn)
	if depth, err := s.Outbox().Depth(t.Context()); err != nil || depth.Waiting != 0 || depth.Dead != 0 {
		t.Errorf("%+v, %v is left", depth, err)
	}
	var rows, texts int
	must(t, conn.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT text) FROM applied`).Scan(&rows, &texts))
	if rows != len(d.first) || texts != rows {
		t.Errorf("%d rows of %d messages were applied, and %d messages came", rows, texts, len(d.first))
	}
	t.Logf("%d deliveries of %d messages, %d workers killed", d.count, len(d.first), killed)
	if killed < 10 {
		t.Errorf("only %d workers were killed", killed)
	}
}

// The server is killed with -9 under load and comes back: what was committed arrives,
// and nothing else.
func TestOutboxOfAKilledServer(t *testing.T) {
	t.Parallel()
	const clerks, rounds = 6, 5
	pg := testservers.NewPostgres(t, nil)
	url := pg.URL("postgres")
	s := open(t, url, nil)
	exec(t, connect(t, url), ordersTable)
	db := stdlib.OpenDBFromPool(s.Pool())
	t.Cleanup(func() { _ = db.Close() })
	d, _ := newDepot(t, 1<<30)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for range 2 {
		w, err := newWorker(s, shortLease, outbox.SinkFunc(func(_ context.Context, m *outbox.Delivery) outbox.Receipt {
			if taken, _ := d.take(base64.StdEncoding.EncodeToString(m.Payload), m.Key); !taken {
				return outbox.Receipt{Err: errors.New("not now")}
			}
			return outbox.Receipt{}
		}))
		must(t, err)
		all.Go(func() { _ = w.Run(ctx) })
	}
	var producers sync.WaitGroup
	over := make(chan struct{})
	for c := range clerks {
		producers.Go(func() {
			clerk := &clerk{s, db, fmt.Sprint("clerk ", c)}
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := clerk.order(t.Context()); err != nil { // the order may be there or not; the next comes behind it
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range rounds {
		before := d.arrived()
		within(t, patience, "deliveries", func() bool { return d.arrived() >= before+100+rand.IntN(200) })
		must(t, pg.Kill())
		must(t, pg.Restart(t.Context()))
	}
	close(over)
	producers.Wait()
	whileMoving(t, d.arrived, "everything is delivered", drained(t, s))
	stop()
	all.Wait()
	d.check(t, connect(t, url))
	t.Logf("%d deliveries of %d messages", d.count, len(d.first))
}

// TestW65_ZombieWorkerEndsNothing: a worker that stood still for longer than its
// lease has sent a message that another has by now. Its word counts no more.
func TestW65_ZombieWorkerEndsNothing(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, nil)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	var fenced atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fenced" {
			fenced.Store(true)
			return
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answer
	}))
	t.Cleanup(server.Close)
	zombie := osexec.CommandContext(t.Context(), os.Args[0])
	zombie.Env = append(os.Environ(), envPost+"="+server.URL, envPostDB+"="+url, envPatient+"=1")
	zombie.Stderr = t.Output()
	must(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Process.Kill(); _ = zombie.Wait() })

	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	must(t, s.Tx(tx).Enqueue(t.Context(), outbox.Message{Topic: "t", Group: "g", Payload: []byte("m")}))
	must(t, tx.Commit(t.Context()))
	<-asked
	must(t, standstill.Begin(zombie.Process))
	close(answer) // the message has arrived; its worker does not get the answer

	heir, err := outbox.NewWorker(s.Outbox(), outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt {
		return outbox.Receipt{Err: errors.New("not now"), After: time.Hour}
	}), &outbox.Options{Timeout: time.Second, Lease: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	within(t, 2*time.Minute, "another worker has the message", func() bool { // the lease of the zombie ends by the clock
		must(t, second(heir.RunOnce(t.Context())))
		return heir.Stats().Again == 1
	})
	must(t, standstill.End(zombie.Process))
	eventually(t, "the zombie's word is refused", fenced.Load)
	failing, err := s.Outbox().Failing(t.Context(), 0, 10)
	if err != nil || len(failing) != 1 || failing[0].Tries != 1 || failing[0].Why != "not now" {
		t.Errorf("after the zombie spoke there is %+v, %v", failing, err)
	}
}
