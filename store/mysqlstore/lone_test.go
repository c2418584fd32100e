package mysqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// A program may leave a transaction open on a connection of the pool that it shares with the
// store, or turn autocommit off. What the store then acknowledges is committed all the same.
func TestLoneStepsAreCommittedWhateverTheSessionIsIn(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"a transaction": `START TRANSACTION`, "a transaction that has written": `START TRANSACTION; INSERT INTO left_open VALUES (1)`,
		"no autocommit": `SET autocommit = 0`, "no autocommit, after a read": `SET autocommit = 0; SELECT * FROM left_open`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testservers.SharedMariaDB(t)
			pool, truth := connect(t, plain(dsn)+"&multiStatements=true"), open(t, dsn, nil)
			s, err := mysqlstore.New(t.Context(), pool, nil)
			must(t, err)
			defer s.Close()
			exec(t, pool, `CREATE TABLE left_open (n INT)`)
			pool.SetMaxOpenConns(1)
			exec(t, pool, left)
			r, err := s.Create(t.Context(), fresh("key"))
			must(t, err)
			if _, err := truth.Load(t.Context(), refOf("key")); err != nil {
				t.Errorf("another connection does not see the reservation: %v", err)
			}
			exec(t, pool, left)
			must(t, second(s.Swap(t.Context(), done(r, "answer"))))
			if got, err := truth.Load(t.Context(), refOf("key")); err != nil || got.State != retrysafe.StateCompleted {
				t.Errorf("another connection sees %v, %v instead of the answer", got.State, err)
			}
		})
	}
}

// A trigger, as a move has them and an audit may, clears what the server's reply says about
// the row. What a step returns is what is stored all the same.
func TestStepsBesideTriggersReturnWhatIsStored(t *testing.T) {
	t.Parallel()
	for name, setUp := range map[string]func(t *testing.T, s *mysqlstore.Store, dsn string){
		"a move": func(t *testing.T, s *mysqlstore.Store, _ string) {
			t.Helper()
			must(t, second(s.Mover().Follow(t.Context(), retrysafe.Owner{1})))
		},
		"before": func(t *testing.T, _ *mysqlstore.Store, dsn string) { t.Helper(); audit(t, dsn, "BEFORE") },
		"after":  func(t *testing.T, _ *mysqlstore.Store, dsn string) { t.Helper(); audit(t, dsn, "AFTER") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testservers.SharedMariaDB(t)
			s := open(t, dsn, nil)
			setUp(t, s, dsn)
			r, err := s.Create(t.Context(), fresh("key"))
			must(t, err)
			isStored(t, s, &r)
			longer := r.Update()
			longer.Term = time.Minute
			r, err = s.Swap(t.Context(), longer)
			must(t, err)
			isStored(t, s, &r)
			r, err = s.Swap(t.Context(), done(r, "answer"))
			must(t, err)
			isStored(t, s, &r)
		})
	}
}

// refusingServer refuses each statement.
type refusingServer struct{}

func (refusingServer) Connect(context.Context) (driver.Conn, error) { return refusingServer{}, nil }
func (refusingServer) Driver() driver.Driver                        { return nil }
func (refusingServer) Begin() (driver.Tx, error)                    { return nil, driver.ErrBadConn }
func (refusingServer) Close() error                                 { return nil }
func (refusingServer) Prepare(string) (driver.Stmt, error) {
	return nil, &mysql.MySQLError{Number: 1317, Message: "Query execution was interrupted"}
}

// If the server refuses to tell the revision of a step, the step is stored all the same: the
// error must not look like a refusal of the step, which would be sent again.
func TestRevisionThatIsNotToldIsNoRefusal(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(refusingServer{})
	defer db.Close()
	link, err := db.Conn(t.Context())
	must(t, err)
	defer link.Close()
	var refusal *mysql.MySQLError
	if err := mysqlstore.LastInsertID(t.Context(), link); err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), "the step is stored") {
		t.Errorf("the question is refused: %v", err)
	}
}

// A trigger may write to a table that is not there: that is not the store's schema.
func TestTriggerThatCannotWriteIsNamed(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	s := open(t, dsn, nil)
	audit(t, dsn, "AFTER")
	exec(t, s.DB(), `DROP TABLE audit`)
	if _, err := s.Create(t.Context(), fresh("key")); err == nil || !strings.Contains(err.Error(), "used by a trigger") {
		t.Errorf("Create: %v", err)
	}
}

// audit makes triggers that note each row that is inserted or updated, under a number.
func audit(t *testing.T, dsn, when string) {
	t.Helper()
	db := connect(t, dsn)
	exec(t, db, `CREATE TABLE audit (n BIGINT AUTO_INCREMENT PRIMARY KEY, id BINARY(16)) AUTO_INCREMENT = 77`)
	for _, what := range []string{"INSERT", "UPDATE"} {
		exec(t, db, `CREATE TRIGGER audit_`+what+` `+when+` `+what+` ON retrysafe_keys FOR EACH ROW INSERT INTO audit (id) VALUES (NEW.id)`)
	}
}

// isStored fails the test unless a record has the revision and the times of the stored one.
func isStored(t *testing.T, s *mysqlstore.Store, r *retrysafe.Record) {
	t.Helper()
	got, err := s.Load(t.Context(), r.Ref)
	must(t, err)
	if got.Revision != r.Revision || !got.Deadline.Equal(r.Deadline) || !got.UpdatedAt.Equal(r.UpdatedAt) || !got.CreatedAt.Equal(r.CreatedAt) {
		t.Errorf("got revision %d, deadline %v, updated %v; stored are %d, %v, %v", r.Revision, r.Deadline, r.UpdatedAt, got.Revision, got.Deadline, got.UpdatedAt)
	}
}

// A gate stops the INSERT of one owner in the middle: the statement has begun to read, and
// its row is not inserted yet, or just was.
type gate struct {
	open    func() // lets it go on
	created chan error
}

// stopped creates a key, and returns when its INSERT has stopped.
func stopped(t *testing.T, s *mysqlstore.Store, dsn, when string, w retrysafe.Write) *gate {
	t.Helper()
	db := connect(t, dsn)
	name := one[string](t, db, `SELECT DATABASE()`) // locks have names for the whole server
	exec(t, db, fmt.Sprintf(`CREATE TRIGGER gate %s INSERT ON retrysafe_keys FOR EACH ROW SET @passed = IF(NEW.owner = x'%x', GET_LOCK('%s', 60), 0)`, when, w.Owner[:], name))
	held, err := db.Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = held.Close() })
	_, err = held.ExecContext(t.Context(), `SELECT GET_LOCK(?, 60)`, name)
	must(t, err)
	g := &gate{created: make(chan error, 1)}
	g.open = func() {
		_, err := held.ExecContext(t.Context(), `SELECT RELEASE_LOCK(?)`, name)
		must(t, err)
	}
	go func() { g.created <- second(s.Create(context.WithoutCancel(t.Context()), w)) }()
	within(t, 30*time.Second, "the INSERT has stopped", func() bool {
		return one[int](t, db, `SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND state = 'User lock'`, name) == 1
	})
	return g
}

// A transaction may take a key while another process inserts it. One of the two is refused
// before the transaction's operation has run for nothing: the insert.
func TestHoldThatComesBesideAnInsertIsSeen(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"lone", "batched"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dsn := testservers.SharedMariaDB(t)
			s, other := open(t, dsn, nil), open(t, dsn, nil)
			if way == "batched" {
				s.SendLoneStepsAsBatches()
			}
			w := fresh("key")
			w.Owner = retrysafe.Owner{7}
			g := stopped(t, s, dsn, "BEFORE", w)
			tx, _, err := other.BeginTx(t.Context())
			must(t, err)
			if _, err := tx.Reserve(t.Context(), w.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("Reserve: got %v, want ErrNotFound", err)
			}
			g.open()
			if err := <-g.created; !errors.Is(err, retrysafe.ErrBusy) {
				t.Errorf("Create beside the transaction: got %v, want ErrBusy", err)
			}
			must(t, second(tx.Create(t.Context(), fresh("key"))))
			must(t, tx.Commit(t.Context()))
		})
	}
}

// Another process may insert a key after an INSERT of it has begun. With snapshot isolation
// the server does not call that a duplicate.
func TestKeyThatComesBesideAnInsertExists(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"lone", "batched"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dsn := testservers.SharedMariaDB(t)
			s, other := open(t, dsn, nil), open(t, dsn, nil)
			w := fresh("key")
			w.Owner = retrysafe.Owner{7}
			if way == "batched" {
				s.SendLoneStepsAsBatches()
			}
			g := stopped(t, s, dsn, "BEFORE", w)
			must(t, second(other.Create(t.Context(), fresh("key"))))
			g.open()
			if err := <-g.created; !errors.Is(err, retrysafe.ErrExists) {
				t.Errorf("Create beside another one: got %v, want ErrExists", err)
			}
		})
	}
}
