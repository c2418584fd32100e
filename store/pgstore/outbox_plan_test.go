package pgstore_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

var hoarded = flag.Int("hoard", 200_000, "how many messages lie in the outbox beside which a read must be cheap")

// A hoard is an outbox whose table is filled by hand, and a session that reads it as
// a worker does.
type hoard struct {
	*pgstore.Store
	conn   *pgx.Conn
	url    string
	shards []outbox.Shard
}

func newHoard(t *testing.T) *hoard {
	t.Helper()
	url := testservers.Shared(t)
	h := &hoard{open(t, url, nil), connect(t, url), url, nil}
	exec(t, h.conn, `ALTER TABLE retrysafe_outbox SET (autovacuum_enabled = off)`)
	held, err := h.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	h.shards = held.Shards
	return h
}

// put adds n messages. Line, shard, tries and due are expressions over i.
func (h *hoard) put(t *testing.T, n int, line, shard, tries, due string) {
	t.Helper()
	m := outbox.Message{Topic: "t", Key: "k", Payload: []byte(strings.Repeat("x", 100))}
	exec(t, h.conn, fmt.Sprintf(`INSERT INTO retrysafe_outbox (line, shard, tries, due, enqueued, body)
		SELECT %s, %s, %s, extract(epoch FROM now()) * 1000000 + %s, extract(epoch FROM now()) * 1000000, $1 FROM generate_series(1, %d) i`, line, shard, tries, due, n),
		outbox.AppendMessage(nil, &m))
}

// due explains a read of everything: prepared, or planned with its values as behind a
// pooler.
func (h *hoard) due(t *testing.T, s *pgstore.Store, limit int) string {
	t.Helper()
	c := prepared(t, h.url, s, s.Outbox().Statements())
	exec(t, c.Conn, "BEGIN")
	defer exec(t, c.Conn, "ROLLBACK")
	exec(t, c.Conn, c.settings)
	var ns, epochs []string
	for _, s := range h.shards {
		ns, epochs = append(ns, fmt.Sprint(s.N)), append(epochs, fmt.Sprint(s.Epoch))
	}
	return explained(t, c, fmt.Sprintf(`retrysafe_box_due ('{%s}', '{%s}', 12345, %d, 128, true, 67108864)`, strings.Join(ns, ","), strings.Join(epochs, ","), limit))
}

// first explains a quick read, beside known messages.
func (h *hoard) first(t *testing.T, s *pgstore.Store, limit int) string {
	t.Helper()
	c := prepared(t, h.url, s, s.Outbox().Statements())
	exec(t, c.Conn, "BEGIN")
	defer exec(t, c.Conn, "ROLLBACK")
	exec(t, c.Conn, c.settings)
	var ns, epochs []string
	for _, s := range h.shards {
		ns, epochs = append(ns, fmt.Sprint(s.N)), append(epochs, fmt.Sprint(s.Epoch))
	}
	return explained(t, c, fmt.Sprintf(`retrysafe_box_first ('{%s}', '{%s}', '{1,2,3}', 10, '\\x010101', %d, 256, 10000)`, strings.Join(ns, ","), strings.Join(epochs, ","), limit))
}

const hour = "3600000000"

// With many messages that wait, a read touches about what it returns, and
// finds what is beside them: behind a group that is held up, kept back, or behind a
// provider that is down.
func TestDueIsCheapBesideMany(t *testing.T) {
	t.Parallel()
	many := *hoarded
	for name, c := range map[string]struct {
		fill        func(t *testing.T, h *hoard)
		limit, most int // messages, and blocks that a read touches
		want        int
	}{
		"one group held up": {func(t *testing.T, h *hoard) {
			h.put(t, 1, "7", "3", "1", hour)
			h.put(t, many, "7", "3", "0", "0")
		}, 5000, 3000, 0},
		"kept back":           {func(t *testing.T, h *hoard) { h.put(t, many, "0", "i % 64", "0", hour) }, 5000, 3000, 0},
		"every group held up": {func(t *testing.T, h *hoard) { h.put(t, many, "i * 7777777777", "i % 64", "1", hour) }, 5000, 120_000, 0},
		"all due, in groups":  {func(t *testing.T, h *hoard) { h.put(t, many, "1 + i % 10000", "i % 64", "0", "0") }, 5000, 12_000, 5000},
		"all due, alone":      {func(t *testing.T, h *hoard) { h.put(t, many, "0", "i % 64", "0", "0") }, 5000, 12_000, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHoard(t)
			c.fill(t, h)
			behind := open(t, h.url, &pgstore.Options{PgBouncer: true})
			check := func(when string) {
				for who, s := range map[string]*pgstore.Store{"prepared": h.Store, "behind a pooler": behind} {
					plan := h.due(t, s, c.limit)
					read := blocksRead(t, plan)
					t.Logf("%s, %s: %d blocks, %s", when, who, read, plan[strings.LastIndex(plan, "Execution"):])
					if read > c.most || strings.Contains(plan, "Seq Scan on retrysafe_outbox") || strings.Contains(plan, "outbox_pkey") || strings.Contains(plan, "JIT:") {
						t.Errorf("%s, %s: a read touches %d blocks, want %d at most:\n%s", when, who, read, c.most, plan)
					}
				}
				quick := h.first(t, h.Store, c.limit)
				if read := blocksRead(t, quick); read > 3*c.limit || !strings.Contains(quick, "retrysafe_outbox_pkey") || strings.Contains(quick, "Sort") || strings.Contains(quick, "Seq Scan on retrysafe_outbox") {
					t.Errorf("%s: a quick read touches %d blocks, want %d at most:\n%s", when, read, 3*c.limit, quick)
				}
				began := time.Now()
				list, err := h.Outbox().Due(t.Context(), h.shards, c.limit)
				must(t, err)
				t.Logf("%s: Due returns %d in %v", when, len(list), time.Since(began))
				if len(list) != c.want {
					t.Errorf("%s: %d messages are due, want %d", when, len(list), c.want)
				}
			}
			check("never analysed")
			exec(t, h.conn, `VACUUM ANALYZE retrysafe_outbox`)
			check("analysed")
			if c.want == 0 { // others are found beside
				h.put(t, 1, "8", "3", "0", "0")
				h.put(t, 1, "0", "3", "0", "0")
				found := 0
				eventually(t, "what is due beside them is found", func() bool {
					list, err := h.Outbox().Due(t.Context(), h.shards, c.limit)
					must(t, err)
					found = max(found, len(list))
					return found == 2
				})
			}
		})
	}
}
