// Package shop is what the examples for gRPC and Connect do: bookings in their own
// database, charges at a provider that honours a key, and mails by one that knows none.
package shop

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// A Server serves connections, as those of gRPC and of net/http do.
type Server interface {
	Serve(net.Listener) error
}

// Main runs a program. Its arguments are a SQLite file, the URL of a provider, and the
// address to listen on, which it prints.
func Main(newServer func(*sqlitestore.Store, Provider) (Server, error)) {
	if len(os.Args) != 4 {
		log.Fatal("usage: program keys.db http://provider 127.0.0.1:9000")
	}
	store, err := Open(context.Background(), os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server, err := newServer(store, Provider(os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	log.Fatal(server.Serve(l))
}

// Open opens the store of keys, and in the same database the table of bookings.
func Open(ctx context.Context, file string) (*sqlitestore.Store, error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS bookings (id TEXT, amount INTEGER)`); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// Book books an amount in a transaction.
func Book(ctx context.Context, tx *sql.Tx, amount int64) (id string, err error) {
	id = rand.Text()
	_, err = tx.ExecContext(ctx, `INSERT INTO bookings (id, amount) VALUES (?, ?)`, id, amount)
	return id, err
}

// A Provider is called at a URL.
type Provider string

// Charge charges an amount under a key that the provider honours.
func (p Provider) Charge(ctx context.Context, key string, amount int64) (id string, err error) {
	return p.post(ctx, "/charges", key, strconv.FormatInt(amount, 10))
}

// Mail sends a mail.
func (p Provider) Mail(ctx context.Context) (id string, err error) {
	return p.post(ctx, "/mails", "", "")
}

func (p Provider) post(ctx context.Context, path, key, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p)+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fmt.Errorf("the provider does not answer: %w", err)
	}
	defer res.Body.Close()
	id, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the provider says %s", res.Status)
	}
	return string(id), err
}
