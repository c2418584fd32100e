// Resumable-payment books a ride in three steps, two of them in a database and one
// at a payment provider, and loses the provider's reply in the middle. The retry
// goes on where the first attempt stopped: the ride is not booked again, the charge
// is recognised, and every request in the end gets one answer.
//
//	go run ./examples/resumable-payment
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "resumable-payment:", err)
		os.Exit(1)
	}
}

// run is a client that retries until it has its answer, and then asks once more.
func run(ctx context.Context, out io.Writer) error {
	say := log.New(out, "", 0)
	dir, err := os.MkdirTemp("", "resumable-payment")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "rides.db"), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		return err
	}
	// The provider honours our key, so the charge may be sent again: the effects are
	// keyed. Finished phases stay finished, whichever process goes on: LapseResume.
	engine, err := retrysafe.New(store, &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume},
	})
	if err != nil {
		return err
	}
	bank := &provider{log: say, losesReply: true}
	server := httptest.NewServer(bank)
	defer server.Close()
	rides := &rides{store: store, provider: server.URL, log: say}

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-a", Key: "ride-to-the-airport"}, Operation: "POST /rides"}
	for request := 1; ; request++ {
		say.Printf("request %d", request)
		answer, err := engine.Do(ctx, call, rides.book)
		switch {
		case err != nil && request < 3:
			say.Print("  failed, ask again: ", err)
		case err != nil:
			return err
		default:
			say.Printf("  %d %s, replayed: %v", answer.Status, answer.Body, answer.Replayed)
		}
		if answer.Replayed {
			break
		}
	}
	var booked, receipts int
	if err := store.DB().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM rides), (SELECT count(*) FROM receipts)`).Scan(&booked, &receipts); err != nil {
		return err
	}
	say.Printf("%d ride, %d charge, %d receipt", booked, bank.charges(), receipts)
	if booked != 1 || bank.charges() != 1 || receipts != 1 {
		return errors.New("something was done twice, or not at all")
	}
	return nil
}

const schema = `
CREATE TABLE rides (id INTEGER PRIMARY KEY, target TEXT NOT NULL);
CREATE TABLE receipts (ride INTEGER NOT NULL, charge TEXT NOT NULL);`

// rides is the business.
type rides struct {
	store    *sqlitestore.Store
	provider string
	log      *log.Logger
}

// book is the operation. Each attempt runs it from the top; finished steps return their
// stored results.
func (r *rides) book(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
	var none retrysafe.Result

	// The row and the checkpoint of the phase are one commit.
	ride, err := retrysafe.PhaseTx(ctx, r.store, "ride", func(ctx context.Context, tx *sql.Tx) (int64, error) {
		r.log.Printf("  attempt %d books the ride", x.Attempt())
		res, err := tx.ExecContext(ctx, `INSERT INTO rides (target) VALUES ('airport')`)
		if err != nil {
			return 0, err
		}
		return res.LastInsertId()
	})
	if err != nil {
		return none, err
	}

	// Effect stores the request before the call. Each attempt builds another request
	// here, but every call sends the first one.
	request := fmt.Appendf(nil, `{"ride": %d, "amount": 4200, "attempt": %d}`, ride, x.Attempt())
	charge, err := retrysafe.Effect(ctx, "charge", request, func(ctx context.Context, a retrysafe.Attempt) (charge, error) {
		r.log.Printf("  attempt %d calls the provider, call %d: %s", x.Attempt(), a.N, a.Request)
		made, err := pay(ctx, r.provider, a)
		a.Provider(made.ID)
		return made, err
	})
	if err != nil {
		return none, err // the charge may have happened; the next attempt sends it again, under the same key
	}
	if charge.Declined { // a decline is a result, and was stored like any other
		return retrysafe.Result{Status: 402, Body: []byte("declined")}, nil
	}

	if _, err := retrysafe.PhaseTx(ctx, r.store, "receipt", func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
		r.log.Printf("  attempt %d writes the receipt", x.Attempt())
		_, err := tx.ExecContext(ctx, `INSERT INTO receipts (ride, charge) VALUES (?, ?)`, ride, charge.ID)
		return struct{}{}, err
	}); err != nil {
		return none, err
	}
	body, err := json.Marshal(map[string]any{"ride": ride, "charge": charge.ID})
	return retrysafe.Result{Status: 201, Body: body}, err
}
