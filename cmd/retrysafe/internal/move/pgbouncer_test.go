package move_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A move goes through a pool of transactions too.
func TestMoveThroughPgBouncer(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	url := testservers.NewPgBouncer(t, pg, nil).URL("postgres")
	open := func(schema string) *pgstore.Store {
		s, err := pgstore.Open(t.Context(), url, &pgstore.Options{PgBouncer: true, Schema: schema, Timeout: time.Minute})
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	}
	key := func(name string) retrysafe.Write {
		return retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "s", Key: name}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress,
			Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
		}}
	}
	from, to := open("old"), open("new")
	_, err := from.Create(t.Context(), key("works"))
	must(t, err)
	e, err := retrysafe.New(from, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}, StoreTimeout: time.Minute})
	must(t, err)
	_, err = retrysafe.DoTx(t.Context(), e, from, retrysafe.Call{Ref: key("works in one commit").Ref}, func(context.Context, pgx.Tx) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 201}, nil
	})
	must(t, err)
	report, err := move.Records(t.Context(), from, to, &move.Options{Progress: func(p move.Progress) {
		if p.Stage == move.Cutting {
			_, err := from.Create(t.Context(), key("meanwhile"))
			must(t, err)
		}
	}})
	if err != nil || report.Records != 2 || report.Again != 1 {
		t.Errorf("Records = %+v, %v", report, err)
	}
	if _, err := from.Load(t.Context(), key("works").Ref); !errors.Is(err, pgstore.ErrMoved) {
		t.Errorf("Load = %v", err)
	}
	for _, name := range []string{"works", "works in one commit", "meanwhile"} {
		_, err := to.Load(t.Context(), key(name).Ref)
		must(t, err)
	}
}
