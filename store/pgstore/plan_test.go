package pgstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// by says by which index each statement finds its rows. What is not here needs
// none.
var by = map[string]string{
	"retrysafe_reserve":          "retrysafe_keys_pkey",
	"retrysafe_reserve_one":      "retrysafe_keys_pkey",
	"retrysafe_insert":           "retrysafe_keys_pkey",
	"retrysafe_insert_unlocked":  "retrysafe_keys_pkey",
	"retrysafe_others":           "retrysafe_keys_pkey",
	"retrysafe_read":             "retrysafe_keys_pkey",
	"retrysafe_update":           "retrysafe_keys_pkey",
	"retrysafe_settle":           "retrysafe_keys_pkey",
	"retrysafe_settle_one":       "retrysafe_keys_pkey",
	"retrysafe_update_unlocked":  "retrysafe_keys_pkey",
	"retrysafe_list":             "retrysafe_keys_pkey",
	"retrysafe_count":            "retrysafe_keys_pkey",
	"retrysafe_retentions":       "retrysafe_keys_filed",
	"retrysafe_list_due":         "retrysafe_keys_filed",
	"retrysafe_list_open":        "retrysafe_keys_filed",
	"retrysafe_list_buckets":     "retrysafe_keys_filed",
	"retrysafe_watermark":        "retrysafe_keys_filed",
	"retrysafe_rebucket_renewed": "retrysafe_keys_filed",
	"retrysafe_part_of_slots":    "retrysafe_keys_filed",
	"retrysafe_shorten":          "retrysafe_keys_filed",
	"retrysafe_purge":            "retrysafe_keys_filed",
	"retrysafe_rebucket_settled": "retrysafe_keys_filed",
	"retrysafe_read_one":         "retrysafe_keys_pkey",
	"retrysafe_take":             "retrysafe_keys_pkey",
	"retrysafe_announce":         "retrysafe_keys_pkey",
	"retrysafe_changes":          "retrysafe_keys_pkey",
	"retrysafe_last_change":      "", // its table has one row
	"retrysafe_reserve_new":      "", // it inserts, and looks for nothing
	"retrysafe_put":              "",
	"retrysafe_put_held":         "",
	"retrysafe_put_final":        "",
	"retrysafe_settings":         "",
	"retrysafe_since":            "",
	"retrysafe_same_since":       "",
	"retrysafe_lock_own":         "",
	"retrysafe_confirm":          "",
}

// The very statements of the store find their rows by an index and never read the
// table: also if they were planned when it was empty, and whatever the server's
// statistics say of it.
func TestPlansUseTheIndexes(t *testing.T) {
	t.Parallel()
	holdPlans(t, testservers.Shared(t))
}

func holdPlans(t *testing.T, url string) {
	t.Helper()
	s, conn := open(t, url, nil), connect(t, url)
	behind := open(t, url, &pgstore.Options{PgBouncer: true})
	exec(t, conn, `ALTER TABLE retrysafe_keys SET (autovacuum_enabled = off)`)
	for name := range s.Statements() {
		if _, ok := by[name]; !ok {
			t.Errorf("%s: this test does not know its index", name)
		}
	}
	early := prepared(t, url, s)
	check(t, "empty, never analysed", early)
	exec(t, conn, `INSERT INTO retrysafe_keys (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
		SELECT gen_random_uuid(), gen_random_uuid(), i, i, i, CASE WHEN i % 3 = 0 THEN 3600 ELSE 86400 END, i % 90000, CASE WHEN i % 100 = 0 THEN 2 ELSE 3 END, '\x01', '\x02', ''
		FROM generate_series(1, 100000) i`)
	check(t, "100,000 rows, planned when it was empty", early)
	check(t, "100,000 rows, never analysed", prepared(t, url, s))
	check(t, "100,000 rows, never analysed, behind a pooler", prepared(t, url, behind))
	exec(t, conn, `ANALYZE retrysafe_keys`)
	check(t, "100,000 rows, analysed", prepared(t, url, s))
	check(t, "100,000 rows, analysed, behind a pooler", prepared(t, url, behind))
	// Of an empty table the server knows that any plan will do; but one key is looked
	// up all the same, and never by the other index.
	exec(t, conn, `TRUNCATE retrysafe_keys`)
	exec(t, conn, `VACUUM ANALYZE retrysafe_keys`)
	check(t, "emptied and vacuumed", prepared(t, url, s), "retrysafe_reserve_one", "retrysafe_settle_one", "retrysafe_read_one", "retrysafe_take")
}

// Of a table that was vacuumed when it was empty the server believes that it has no
// rows, and reads all of the index for each step. Such a plan is made again before
// the table has grown much.
func TestPlansForAnEmptyTableDoNotLast(t *testing.T) {
	t.Parallel()
	const rows, steps = 50_000, 200
	url := testservers.Shared(t)
	conn := connect(t, url)
	s := open(t, url, nil)
	exec(t, conn, `ALTER TABLE retrysafe_keys SET (autovacuum_enabled = off)`)
	exec(t, conn, `VACUUM ANALYZE retrysafe_keys`)
	step := func(i int) {
		t.Helper()
		var wg sync.WaitGroup
		for n := range 4 { // some share a batch
			wg.Go(func() {
				got, err := s.Create(t.Context(), fresh(fmt.Sprint(i, " ", n)))
				if err == nil {
					_, err = s.Swap(t.Context(), done(got, "answer"))
				}
				if err == nil {
					_, err = s.Load(t.Context(), got.Ref)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	step(-1) // they are planned now
	exec(t, conn, `INSERT INTO retrysafe_keys (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
		SELECT gen_random_uuid(), gen_random_uuid(), 1, 9e15, 1, 3600, 2000000000, 2, '', '', '' FROM generate_series(1, $1)`, rows)
	for i := range steps {
		step(i)
	}
	must(t, s.Close()) // what a connection has read is counted at its end at the latest
	var read int
	eventually(t, "the server has counted", func() bool {
		must(t, conn.QueryRow(t.Context(), `SELECT sum(idx_tup_read), sum(idx_scan) >= $1 FROM pg_stat_user_indexes WHERE relname = 'retrysafe_keys'`, steps).Scan(&read, new(bool)))
		return read > steps
	})
	t.Logf("%d steps have read %d entries of the index", 4*3*steps, read)
	if read > rows*steps/4 {
		t.Errorf("%d steps have read %d entries of the index", 4*3*steps, read)
	}
}

// session is a connection as the store has it, with the statements prepared.
type session struct {
	*pgx.Conn
	settings   string
	statements map[string]pgstore.Statement
	params     map[string]string
}

func prepared(t *testing.T, url string, s *pgstore.Store, more ...map[string]pgstore.Statement) session {
	t.Helper()
	c := session{Conn: connect(t, url), statements: s.Statements(), params: map[string]string{}}
	for _, m := range more {
		maps.Copy(c.statements, m)
	}
	exec(t, c.Conn, "BEGIN")
	exec(t, c.Conn, s.Settings())
	for name, st := range c.statements {
		var types, values []string
		for _, oid := range st.OIDs {
			typ := one[string](t, c.Conn, `SELECT $1::oid::regtype::text`, oid)
			types = append(types, typ)
			// Behind a pooler nothing is prepared, and the planner sees the values: as
			// many as a batch has.
			values = append(values, map[string]string{
				"uuid[]": uuids, "bytea[]": `array_fill('\x00'::bytea, '{256}')`, "uuid": `'80000000-0000-0000-0000-000000000000'`,
				"smallint[]": `array_fill(3::smallint, '{256}')`, "integer[]": `array_fill(3600, '{256}')`, "bigint[]": `array_fill(1::bigint, '{256}')`,
				"retrysafe_step[]": `array_fill(ROW('80000000-0000-0000-0000-000000000000', '80000000-0000-0000-0000-000000000000', 1, 1, 1, 3600, 1, 3, '\x00', '\x00', '\x00')::retrysafe_step, '{256}')`,
				"bytea":            `'\x00'`, "smallint": "3", "integer": "3600", "bigint": "100", "boolean": "false",
			}[typ])
		}
		if name == "retrysafe_list_buckets" {
			values[2] = `'{1,5}'`
		}
		list := ""
		if len(types) > 0 {
			list, c.params[name] = "("+strings.Join(types, ", ")+")", "("+strings.Join(values, ", ")+")"
		}
		exec(t, c.Conn, "PREPARE "+name+list+" AS "+st.SQL)
	}
	exec(t, c.Conn, "COMMIT")
	if c.settings = s.Settings(); strings.Contains(c.settings, "true") {
		exec(t, c.Conn, "SET plan_cache_mode = force_custom_plan")
	}
	return c
}

var uuids = `ARRAY[` + strings.Repeat(`'00000000-0000-0000-0000-000000000000', `, 255) + `'ffffffff-ffff-ffff-ffff-ffffffffffff']::uuid[]`

// check explains every statement, or some.
func check(t *testing.T, when string, c session, some ...string) {
	t.Helper()
	exec(t, c.Conn, "BEGIN")
	defer exec(t, c.Conn, "ROLLBACK")
	exec(t, c.Conn, c.settings) // behind a pooler they last for one transaction
	for name, index := range by {
		if _, ok := c.statements[name]; !ok || len(some) > 0 && !slices.Contains(some, name) {
			continue
		}
		rows, err := c.Query(t.Context(), "EXPLAIN EXECUTE "+name+c.params[name], pgx.QueryExecModeSimpleProtocol)
		must(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		plan := strings.Join(lines, "\n")
		found := index == "" || strings.Contains(plan, " using "+index+" on retrysafe_keys")
		for i, line := range lines { // a scan of the whole index is no lookup
			if strings.Contains(line, " using retrysafe_keys_pkey on ") && (i+1 == len(lines) || !strings.Contains(lines[i+1], "Index Cond: (") || !strings.Contains(lines[i+1], "id ")) {
				found = false
			}
		}
		if name == "retrysafe_list_open" && strings.Contains(plan, " using retrysafe_keys_pkey on ") {
			found = false // it would read the table in the order of ids
		}
		if !found || strings.Contains(plan, "Seq Scan on retrysafe_keys") || strings.Contains(plan, "JIT:") {
			t.Errorf("%s: %s is to go by %s:\n%s", when, name, index, plan)
		}
	}
}

// A settlement writes the row only and no index: it finds room in the same page.
func TestSettlesAreHeapOnly(t *testing.T) {
	t.Parallel()
	const keys, clients = 5000, 32
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	exec(t, conn, `ALTER TABLE retrysafe_keys SET (autovacuum_enabled = off)`)
	s.SetLockPatience(time.Minute) // on a busy machine a batch may wait long for a new page
	body := strings.Repeat("x", 200)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := c; i < keys; i += clients {
				got, err := s.Create(t.Context(), fresh(fmt.Sprint(i)))
				if err == nil && i%10 == 0 {
					got, err = s.Swap(t.Context(), beat(got, got.Deadline.Sub(got.ReadAt)))
				}
				if err == nil {
					_, err = s.Swap(t.Context(), done(got, body))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	must(t, s.Close()) // what a connection has done is counted at its end at the latest
	var updates, heapOnly int
	eventually(t, "the server has counted", func() bool {
		must(t, conn.QueryRow(context.WithoutCancel(t.Context()), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'retrysafe_keys'`).Scan(&updates, &heapOnly))
		return updates >= keys+keys/10 // more if a batch was refused and sent again
	})
	t.Logf("%d of %d settlements and heartbeats were heap-only", heapOnly, updates)
	if heapOnly*10 < updates*9 {
		t.Errorf("%d of %d settlements and heartbeats were heap-only, want 90 %%", heapOnly, updates)
	}
	// The index has one entry for each key.
	if n := one[int](t, conn, `SELECT count(*) FROM retrysafe_keys`); n != keys {
		t.Errorf("%d rows", n)
	}
}
