package sqlitestore_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// What a child is told, by its environment.
const (
	envRole  = "RETRYSAFE_POST_ROLE"
	envFile  = "RETRYSAFE_POST_FILE"
	envWhere = "RETRYSAFE_POST_WHERE"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(runPost(role))
	}
	m.Run()
}

// orders is how many transactions are to commit.
const orders = 300

// runPost is all that a child does: it writes orders, or delivers them, until it is
// killed.
func runPost(role string) int {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, os.Getenv(envFile), nil)
	if err == nil {
		if role == "producer" {
			err = produce(ctx, s)
		} else {
			err = deliver(ctx, s, os.Getenv(envWhere))
		}
	}
	if err != nil {
		_, _ = io.WriteString(os.Stderr, role+": "+err.Error()+"\n")
		return 1
	}
	return 0
}

// produce writes orders and their messages, and takes some back.
func produce(ctx context.Context, s *sqlitestore.Store) error {
	for {
		n := 0
		if err := s.DB().QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&n); err != nil {
			return err
		}
		if n >= orders {
			return nil
		}
		if err := order(ctx, s); err != nil {
			return err
		}
	}
}

// order writes one order with the messages of it, as one.
func order(ctx context.Context, s *sqlitestore.Store) error {
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	group := []string{"", "a", "b", "c"}[rand.IntN(4)]
	var texts []string
	var messages []outbox.Message
	for range 1 + rand.IntN(3) {
		payload := make([]byte, 8+rand.IntN(40))
		for i := range payload {
			payload[i] = byte(rand.IntN(256))
		}
		texts = append(texts, base64.StdEncoding.EncodeToString(payload))
		messages = append(messages, outbox.Message{Topic: "order", Group: group, Payload: payload})
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO orders (line, texts) VALUES (?, ?)`, group, strings.Join(texts, " "))
	if err == nil {
		err = s.Tx(tx).Enqueue(ctx, messages...)
	}
	switch {
	case err != nil:
		return errors.Join(err, tx.Rollback())
	case rand.IntN(4) == 0:
		return tx.Rollback()
	default:
		return tx.Commit()
	}
}

// deliver sends what is in the outbox to the address.
func deliver(ctx context.Context, s *sqlitestore.Store, where string) error {
	sink := outbox.SinkFunc(func(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, where, bytes.NewReader(d.Payload))
		if err != nil {
			return outbox.Receipt{Err: err}
		}
		req.Header.Set("Idempotency-Key", d.Key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return outbox.Receipt{Err: err}
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return outbox.Receipt{Err: errors.New(resp.Status)}
		}
		return outbox.Receipt{}
	})
	w, err := outbox.NewWorker(s.Outbox(), sink, &outbox.Options{
		Batch: 3, Timeout: 1200 * time.Millisecond, Lease: 3 * time.Second, Poll: 10 * time.Millisecond, MaxTries: 1 << 20,
		Backoff: outbox.Backoff{First: 5 * time.Millisecond, Longest: 50 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// A depot receives messages, refuses some, and has a process killed now and then.
type depot struct {
	mu    sync.Mutex
	first []string // texts, in the order in which they came for the first time
	keys  map[string]string
	wrong []string
	count int
	kill  chan struct{}
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	text, key := base64.StdEncoding.EncodeToString(body), r.Header.Get("Idempotency-Key")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if rand.IntN(20) == 0 {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	if was, known := d.keys[text]; !known {
		d.first = append(d.first, text)
		d.keys[text] = key
		// Not counted by deliveries: a slow machine delivers again what it was slow to
		// deliver, and each kill makes it slower.
		if len(d.first)%30 == 0 {
			select {
			case d.kill <- struct{}{}:
			default:
			}
		}
	} else if was != key {
		d.wrong = append(d.wrong, fmt.Sprintf("%s came under %q and %q", text, was, key))
	}
}

// TestW64_KilledWorkersAndTransactions: a message arrives if and only if its
// transaction committed, in the order of its group, with the same bytes and under
// one key, whichever process is killed meanwhile.
func TestW64_KilledWorkersAndTransactions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	exec(t, s.DB(), `CREATE TABLE orders (n INTEGER PRIMARY KEY AUTOINCREMENT, line TEXT NOT NULL, texts TEXT NOT NULL)`)
	d := &depot{keys: map[string]string{}, kill: make(chan struct{}, 1)}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	start := func(role string) *osexec.Cmd {
		cmd := osexec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), envRole+"="+role, envFile+"="+path, envWhere+"="+server.URL)
		cmd.Stderr = os.Stderr
		must(t, cmd.Start())
		return cmd
	}
	kill := func(cmd *osexec.Cmd) { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	roles := []string{"producer", "producer", "worker", "worker"}
	children := make([]*osexec.Cmd, len(roles))
	for i, role := range roles {
		children[i] = start(role)
	}
	killed := 0
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	at, since := d.arrived(), time.Now()
	for {
		select {
		case <-d.kill:
			i := rand.IntN(len(children))
			kill(children[i])
			children[i] = start(roles[i])
			killed++
			continue
		case <-poll.C:
		}
		// However long it takes on a busy machine, as long as messages arrive.
		if now := d.arrived(); now != at {
			at, since = now, time.Now()
		} else if time.Since(since) > time.Minute {
			t.Errorf("for a minute no message has arrived behind the first %d", at)
			break
		}
		if depth, err := s.Outbox().Depth(ctx); err != nil {
			t.Error(err)
			break
		} else if depth.Waiting == 0 && one[int](t, s.DB(), `SELECT count(*) FROM orders`) >= orders {
			break
		}
	}
	for _, cmd := range children {
		kill(cmd)
	}
	d.check(t, s.DB())
	if depth, err := s.Outbox().Depth(t.Context()); err != nil || depth.Waiting != 0 || depth.Dead != 0 {
		t.Errorf("%+v, %v is left", depth, err)
	}
	t.Logf("%d deliveries of %d messages, %d killed", d.count, len(d.first), killed)
}

func (d *depot) arrived() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.first)
}

// check compares what came with what committed.
func (d *depot) check(t *testing.T, db *sql.DB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	rows, err := db.QueryContext(t.Context(), `SELECT line, texts FROM orders ORDER BY n`)
	must(t, err)
	defer rows.Close()
	want, of := map[string][]string{}, map[string]string{}
	for rows.Next() {
		var group, texts string
		must(t, rows.Scan(&group, &texts))
		for text := range strings.FieldsSeq(texts) {
			want[group] = append(want[group], text)
			of[text] = group
		}
	}
	must(t, rows.Err())
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
			t.Errorf("group %q: %d messages came, in the order\n%v\nwant %d\n%v", group, len(got[group]), got[group], len(want[group]), want[group])
		}
	}
	for _, wrong := range d.wrong {
		t.Error(wrong)
	}
}
