package crashtest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Member is one process of a fleet that is upgraded while it works.
type Member struct {
	// Pay runs an operation under a key. The key decides whether its effect is in the
	// transaction of the answer or at a provider that honours keys. Effect and answer
	// contain by, the name of the member.
	Pay func(ctx context.Context, key, by string) (retrysafe.Outcome, error)
	// Close closes the store and the database.
	Close func() error
	db    *sql.DB
}

func paid(by string) retrysafe.Result {
	return retrysafe.Result{Status: 201, Body: []byte("paid by " + by)}
}

// NewMember returns a member over a store and its own database. Exec runs a statement
// in a transaction. Note, if it is not nil, is called with each key that was answered:
// the next version writes something to its row.
func NewMember[X any](s retrysafe.TxStore[X], db *sql.DB, exec func(ctx context.Context, tx X, statement string) error, note func(ctx context.Context, ref retrysafe.Ref) error) (*Member, error) {
	policy := retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun, Lease: 5 * Lease}
	inTx, err := retrysafe.New(s, &retrysafe.Options{Policy: policy, StoreTimeout: patience, SettleTimeout: patience})
	if err != nil {
		return nil, err
	}
	policy.Effects = retrysafe.EffectsKeyed
	keyed, err := inTx.With(policy)
	if err != nil {
		return nil, err
	}
	pay := func(ctx context.Context, call retrysafe.Call, by string) (retrysafe.Outcome, error) {
		if strings.HasSuffix(call.Key, "tx") {
			return retrysafe.DoTx(ctx, inTx, s, call, func(ctx context.Context, tx X) (retrysafe.Result, error) {
				return paid(by), exec(ctx, tx, fmt.Sprintf(`INSERT INTO effects (key, by) VALUES ('%s', '%s')`, call.Key, by))
			})
		}
		return keyed.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			if _, err := db.ExecContext(ctx, `INSERT INTO charges (downstream, key, by) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, x.DownstreamKey("charge"), call.Key, by); err != nil {
				return retrysafe.Result{}, err
			}
			var first string
			err := db.QueryRowContext(ctx, `SELECT by FROM charges WHERE downstream = $1`, x.DownstreamKey("charge")).Scan(&first)
			return paid(first), err
		})
	}
	return &Member{
		Pay: func(ctx context.Context, key, by string) (retrysafe.Outcome, error) {
			call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "pay"}
			out, err := pay(ctx, call, by)
			if err == nil && note != nil {
				err = note(ctx, call.Ref)
			}
			return out, err
		},
		Close: db.Close,
		db:    db,
	}, nil
}

// makeTables creates the tables of the effects. They have no unique constraint: only
// the transaction prevents a second effect of a key.
func (m *Member) makeTables(ctx context.Context) error {
	_, err := m.db.ExecContext(ctx, `CREATE TABLE effects (key TEXT NOT NULL, by TEXT NOT NULL)`)
	if err != nil {
		return err
	}
	_, err = m.db.ExecContext(ctx, `CREATE TABLE charges (downstream TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, by TEXT NOT NULL)`)
	return err
}

// effects returns the names of the members that made the effects of each key.
func (m *Member) effects(ctx context.Context) (map[string][]string, error) {
	rows, err := m.db.QueryContext(ctx, `SELECT key, by FROM effects UNION ALL SELECT key, by FROM charges`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err has what went wrong
	all := map[string][]string{}
	for rows.Next() {
		var key, by string
		if err := rows.Scan(&key, &by); err != nil {
			return nil, err
		}
		all[key] = append(all[key], by)
	}
	return all, rows.Err()
}

// OpenMember opens the database at where, as the present program does, or as the next
// version would.
type OpenMember func(ctx context.Context, where string, next bool) (*Member, error)

// The environment variables of a member.
const (
	envMemberName = "RETRYSAFE_UPGRADE_MEMBER"
	envMemberAt   = "RETRYSAFE_UPGRADE_WHERE"
)

// nextPrefix begins the name of a member of the next version.
const nextPrefix = "next"

// RunMember is the main function of a member process. It reports false in any other
// process.
func RunMember(t *testing.T, open OpenMember) bool {
	t.Helper()
	name := os.Getenv(envMemberName)
	if name == "" {
		return false
	}
	m, err := open(t.Context(), os.Getenv(envMemberAt), strings.HasPrefix(name, nextPrefix))
	if err != nil {
		say("wrong\t%v", err)
		return true
	}
	defer func() { _ = m.Close() }()
	say("done")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var from, to int
		if _, err := fmt.Sscan(in.Text(), &from, &to); err != nil {
			say("wrong\t%v", err)
			return true
		}
		m.payAll(t.Context(), name, from, to)
		say("done")
	}
	return true
}

// payAll pays every key until it has its answer. All members use the same order, so
// that they compete for the keys.
func (m *Member) payAll(ctx context.Context, name string, from, to int) {
	keys := make(chan string)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for key := range keys {
				out, err := m.Pay(ctx, key, name)
				for passes(err) {
					time.Sleep(time.Millisecond)
					out, err = m.Pay(ctx, key, name)
				}
				if err != nil {
					say("wrong\t%s: %v", key, err)
					continue
				}
				say("answer\t%s\t%d %s", key, out.Status, out.Body)
			}
		})
	}
	for i := from; i < to; i++ {
		keys <- fmt.Sprint("key-", i, []string{"-tx", "-keyed"}[i%2])
	}
	close(keys)
	wg.Wait()
}

// passes reports whether a client would retry after err.
func passes(err error) bool {
	return slices.ContainsFunc([]error{retrysafe.ErrInFlight, retrysafe.ErrUnavailable, retrysafe.ErrUnsettled, retrysafe.ErrLost},
		func(e error) bool { return errors.Is(err, e) })
}

// say sends a message to the parent, in one line and one write.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }
