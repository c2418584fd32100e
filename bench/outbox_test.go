package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A courier is a way to get messages out of a database.
type courier struct {
	name string
	// drain puts n messages in, and returns how long it takes until all are out.
	drain func(ctx context.Context, url string, n int) (time.Duration, error)
}

var couriers = []courier{
	{"poller", drainPoller},
	{"River", drainRiver},
	{"ours", drainOurs},
}

// lots is into how many groups messages are divided.
const lots = 10_000

var payload = []byte(`{"id":"evt_0123456789abcdef","type":"payment.captured","amount":1200,"currency":"EUR","description":"` + strings.Repeat("invoice ", 12) + `"}`)

// noted is a sink that does nothing but count, and tells when all have come.
type noted struct {
	n    atomic.Int64
	want int64
	all  chan struct{}
}

func awaiting(n int) *noted { return &noted{want: int64(n), all: make(chan struct{})} }

func (k *noted) add(n int) {
	if at := k.n.Add(int64(n)); at >= k.want && at-int64(n) < k.want {
		close(k.all)
	}
}

// Deliver implements [outbox.Sink].
func (k *noted) Deliver(_ context.Context, batch []outbox.Delivery) []outbox.Receipt {
	k.add(len(batch))
	return make([]outbox.Receipt, len(batch))
}

func message(i int) outbox.Message {
	return outbox.Message{Topic: "payments", Group: fmt.Sprint("account ", i%lots), Key: fmt.Sprint("key ", i), Payload: payload}
}

// enqueue commits messages with a row of the business's.
func enqueue(ctx context.Context, s *pgstore.Store, from, n int) error {
	tx, _, err := s.BeginTx(ctx)
	if err != nil {
		return err
	}
	all := make([]outbox.Message, n)
	for i := range all {
		all[i] = message(from + i)
	}
	if err := tx.(outbox.Enqueuer).Enqueue(ctx, all...); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// work runs the default worker until stop.
func work(ctx context.Context, s *pgstore.Store, sink outbox.Sink) (stop func() error, err error) {
	w, err := outbox.NewWorker(s.Outbox(), sink, &outbox.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() error { cancel(); return <-done }, nil
}

func drainOurs(ctx context.Context, url string, n int) (time.Duration, error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for at := 0; at < n; at += 1000 {
		if err := enqueue(ctx, s, at, min(1000, n-at)); err != nil {
			return 0, err
		}
	}
	if err := calm(ctx, s.Pool()); err != nil {
		return 0, err
	}
	sink := awaiting(n)
	began := time.Now()
	stop, err := work(ctx, s, sink)
	if err != nil {
		return 0, err
	}
	<-sink.all
	err = stop() // until all are ended
	took := time.Since(began)
	if depth, gauged := s.Outbox().Depth(ctx); err == nil && (gauged != nil || depth.Waiting != 0) {
		err = fmt.Errorf("%d are left, %w", depth.Waiting, gauged)
	}
	return took, err
}

// calm lets a run begin with a table that was vacuumed and all pages written.
func calm(ctx context.Context, pool *pgxpool.Pool) error {
	for _, sql := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// The poller works as the article says: a hundred events that are pending, each
// published and marked as published, again and again. Here it does not wait 500 ms
// between two polls.
const pollerSchema = `
CREATE TABLE outbox_events (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    aggregate_id TEXT  NOT NULL,
    event_type   TEXT  NOT NULL,
    payload      JSONB NOT NULL,
    status       TEXT  NOT NULL DEFAULT 'PENDING',
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    published_at TIMESTAMPTZ
);
CREATE INDEX outbox_pending_idx ON outbox_events (id) WHERE status = 'PENDING'`

func drainPoller(ctx context.Context, url string, n int) (time.Duration, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	for _, statement := range []string{pollerSchema, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_id, event_type, payload)
		SELECT 'account ' || i %% %d, 'payments', '%s' FROM generate_series(1, %d) i`, lots, payload, n), "VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	sink := awaiting(n)
	began := time.Now()
	for {
		published, err := pollOnce(ctx, db, sink)
		if err != nil {
			return 0, err
		}
		if published == 0 {
			return time.Since(began), nil
		}
	}
}

func pollOnce(ctx context.Context, db *sql.DB, sink *noted) (int, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, `SELECT id, aggregate_id, event_type, payload FROM outbox_events WHERE status = 'PENDING' ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		var aggregate, kind string
		var body []byte
		if err := rows.Scan(&id, &aggregate, &kind, &body); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, id := range ids {
		sink.add(1)
		if _, err := tx.ExecContext(ctx, `UPDATE outbox_events SET status = 'PUBLISHED', published_at = now() WHERE id = $1`, id); err != nil {
			return 0, err
		}
	}
	return len(ids), tx.Commit()
}

// River looks for jobs as often as in its own benchmark, far more often than by
// default. That benchmark has 2,000 workers and says that 1,000 do better; so they do
// here, and these are what it gets.
type event struct {
	Body string `json:"body"`
}

func (event) Kind() string { return "payments" }

type eventWorker struct {
	river.WorkerDefaults[event]
	sink *noted
}

func (w *eventWorker) Work(context.Context, *river.Job[event]) error {
	w.sink.add(1)
	return nil
}

func drainRiver(ctx context.Context, url string, n int) (time.Duration, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return 0, err
	}
	sink, workers := awaiting(n), river.NewWorkers()
	river.AddWorker(workers, &eventWorker{sink: sink})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers, Logger: quiet,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		return 0, err
	}
	for at := 0; at < n; at += 1000 {
		jobs := make([]river.InsertManyParams, min(1000, n-at))
		for i := range jobs {
			jobs[i].Args = event{string(payload)}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return 0, err
		}
	}
	if err := calm(ctx, pool); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	<-sink.all
	err = client.Stop(ctx) // until all are completed
	return time.Since(began), err
}

// messages: how fast messages get from a commit to a sink that does nothing.
func messages(l *lab) {
	b := l.bed(l)
	names := make([]string, len(couriers))
	for i, c := range couriers {
		names[i] = c.name
	}
	drains := l.interleave(names, func(i int) sample {
		url, drop := b.create()
		defer drop()
		wal, cpu := b.wal(), b.cpu()
		took, err := couriers[i].drain(l.Context(), url, l.messages)
		if err != nil {
			l.Fatalf("%s: %v", names[i], err)
		}
		return sample{calls: l.messages, lasted: took, wal: b.wal() - wal, serverCPU: b.cpu() - cpu}
	})
	const ten = 10
	streams := l.interleave([]string{"stream"}, func(int) sample { return b.stream(8, ten, 0, l.stream) })["stream"]
	calm := l.interleave([]string{"calm"}, func(int) sample { return b.stream(8, 1, 500, l.run) })["calm"]
	t := table{
		title: "Outbox",
		note: "A backlog of " + count(float64(l.messages)) + " messages in " + count(lots) + " groups is delivered to a sink that does nothing: by a poller that " +
			"takes 100 and marks each as published, by River v0.50.0 with the settings of its own benchmark and 1,000 workers, which suit it best, by the default worker. Then " + clientsText(8) +
			" commit ten messages a transaction as fast as they can, beside the worker; and one message a transaction, 500 a second.",
		head: []string{"", "messages/s", "p50", "p99", "CPU server"},
	}
	for _, name := range names {
		t.row("backlog, "+name, drains[name].of(perSecond).text(count), "", "", drains[name].of(serverMicros).text(micros))
	}
	for _, r := range []struct {
		name string
		series
	}{{"ours, ten a transaction", streams}, {"ours, 500 a second", calm}} {
		t.row(r.name, r.of(perSecond).text(count), r.of(p50).text(micros), r.of(p99).text(micros), r.of(serverMicros).text(micros))
	}
	l.report.add(t)
	for i, goal := range []float64{12, 10} {
		beside := names[i]
		l.report.find(finding{
			what: "backlog of messages, messages/s", beside: beside,
			got: drains["ours"].over(drains[beside], perSecond), goal: atLeast(goal), stretch: atLeast(20),
		})
	}
	l.report.find(finding{
		what: "messages/s from commit to sink, ten a transaction", beside: "–", got: streams.of(perSecond), format: count, goal: atLeast(10_000),
	})
	l.report.find(finding{
		what: "p50 from commit to sink, 500 messages/s", beside: "–", got: calm.of(p50), format: micros, goal: atMost(1_500),
	})
}

// stream lets clients commit messages while the default worker delivers, for a time:
// as fast as they can, or so many a second. A call is a message; what it took is from
// its commit to the sink.
func (b *bed) stream(clients, each, rate int, lasts time.Duration) sample {
	b.t.Helper()
	url, drop := b.create()
	defer drop()
	ctx := b.t.Context()
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	in := &inbound{committed: map[int]time.Time{}, arrived: map[int]time.Time{}}
	stop, err := work(ctx, s, in)
	if err != nil {
		b.t.Fatal(err)
	}
	wal, cpu, own := b.wal(), b.cpu(), cpuTime()
	began := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for time.Since(began) < lasts {
				from := int(next.Add(int64(each))) - each
				if rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(from) * time.Second / time.Duration(rate))))
				}
				if err := enqueue(ctx, s, from, each); err != nil {
					b.t.Error(err)
					return
				}
				in.commit(from, each)
			}
		})
	}
	wg.Wait()
	for int64(in.size()) < next.Load() && !b.t.Failed() {
		time.Sleep(time.Millisecond)
	}
	lasted := time.Since(began)
	out := sample{calls: int(next.Load()), lasted: lasted, took: in.delays(), wal: b.wal() - wal, serverCPU: b.cpu() - cpu, clientCPU: cpuTime() - own}
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// inbound is a sink that remembers when messages came, by the number in their key.
type inbound struct {
	mu                 sync.Mutex
	committed, arrived map[int]time.Time
}

func (in *inbound) commit(from, n int) {
	now := time.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range n {
		in.committed[from+i] = now
	}
}

// Deliver implements [outbox.Sink].
func (in *inbound) Deliver(_ context.Context, batch []outbox.Delivery) []outbox.Receipt {
	now := time.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range batch {
		n := 0
		_, _ = fmt.Sscanf(batch[i].Key, "key %d", &n)
		in.arrived[n] = now
	}
	return make([]outbox.Receipt, len(batch))
}

func (in *inbound) size() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.arrived)
}

func (in *inbound) delays() (took []time.Duration) {
	for n, at := range in.arrived {
		took = append(took, max(at.Sub(in.committed[n]), 0))
	}
	slices.Sort(took)
	return took
}
