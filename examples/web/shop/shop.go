// Package shop is what the examples for chi, gin and echo have in common: how they start,
// what they are asked for, and a provider that honours a key for charges and none for mails.
package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Listening is what a program prints before its address.
const Listening = "listening on "

// Main runs a program. Its arguments are a database, the URL of a provider, the address to
// listen on, which it prints, and the lease of an attempt: how long another one waits until
// it suspects that the program was killed.
func Main(newHandler func(database string, p Provider) http.Handler) {
	if len(os.Args) != 5 {
		log.Fatal("usage: program database http://provider 127.0.0.1:9000 30s")
	}
	h := newHandler(os.Args[1], Provider(os.Args[2]))
	l := Must(new(net.ListenConfig).Listen(context.Background(), "tcp", os.Args[3]))
	fmt.Println(Listening + l.Addr().String())
	log.Fatal((&http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}).Serve(l))
}

// Must returns v. On an error the program ends: it cannot start.
func Must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// The table of bookings is in the store's own database.
const bookings = `CREATE TABLE IF NOT EXISTS bookings (id TEXT PRIMARY KEY, amount BIGINT NOT NULL)`

// Postgres returns a store in PostgreSQL, and an engine over it.
func Postgres(url string) (*pgstore.Store, *retrysafe.Engine) {
	ctx := context.Background()
	store := Must(pgstore.Open(ctx, url, nil))
	Must(store.Pool().Exec(ctx, bookings))
	return store, newEngine(store)
}

// SQLite returns a store in a file, and an engine over it.
func SQLite(file string) (*sqlitestore.Store, *retrysafe.Engine) {
	ctx := context.Background()
	store := Must(sqlitestore.Open(ctx, file, nil))
	Must(store.DB().ExecContext(ctx, bookings))
	return store, newEngine(store)
}

func newEngine(store retrysafe.Store) *retrysafe.Engine {
	lease := Must(time.ParseDuration(os.Args[4]))
	return Must(retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Lease: lease}}))
}

// An Order is the body of each request.
type Order struct{ Amount int64 }

// A Booking is a row of the table.
type Booking struct {
	ID     string
	Amount int64
}

// A Receipt is the body of each answer that is not an error.
type Receipt struct {
	ID string `json:"id"`
}

var (
	// ErrAmount is the answer to an order that cannot be carried out.
	ErrAmount = errors.New("the amount is not positive")
	// ErrProvider is the answer if the provider gives none.
	ErrProvider = errors.New("the provider does not answer")
)

// Check returns an error if the order cannot be carried out.
func (o Order) Check() error {
	if o.Amount <= 0 {
		return ErrAmount
	}
	return nil
}

// Status returns the status of an answer that is an error.
func Status(err error) int {
	if errors.Is(err, ErrAmount) {
		return http.StatusBadRequest
	}
	return http.StatusBadGateway // of the provider
}

// Serve answers a request of net/http with what do returns. It returns the errors of do
// that are not an answer.
func Serve(w http.ResponseWriter, r *http.Request, do func(context.Context, Order) (id string, err error)) error {
	o, ok := readOrder(r)
	if !ok {
		http.Error(w, ErrAmount.Error(), Status(ErrAmount)) // stored like any answer
		return nil
	}
	id, err := do(r.Context(), o)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(Receipt{id})
}

func readOrder(r *http.Request) (o Order, ok bool) {
	err := json.NewDecoder(r.Body).Decode(&o)
	return o, err == nil && o.Check() == nil
}

// Handler returns a handler of net/http that answers with what do returns.
func Handler(do func(context.Context, Order) (id string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := Serve(w, r, do); err != nil {
			http.Error(w, err.Error(), Status(err))
		}
	}
}

// A Provider is called at a URL.
type Provider string

// Charge charges an amount under a key that the provider honours.
func (p Provider) Charge(ctx context.Context, key string, o Order) (id string, err error) {
	return p.post(ctx, "/charges", key, o)
}

// Mail sends a mail. The provider knows no keys.
func (p Provider) Mail(ctx context.Context, o Order) (id string, err error) {
	return p.post(ctx, "/mails", "", o)
}

func (p Provider) post(ctx context.Context, path, key string, o Order) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p)+path, strings.NewReader(strconv.FormatInt(o.Amount, 10)))
	if err != nil {
		return "", ErrProvider
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", ErrProvider // err would tell clients where the provider is
	}
	defer res.Body.Close()
	id, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return "", ErrProvider
	}
	return string(id), nil
}
