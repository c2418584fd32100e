package inbox_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/outbox/sink/httpsink"
	"github.com/retrysafe/retrysafe/webhook"
)

// hooks takes signed webhooks in. The id is signed too, so one message cannot be sent
// under two ids.
func hooks(ledger *inbox.Inbox[*sql.Tx], from webhook.Verifier) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		event, err := from.Verify(r.Header, body)
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fresh, err := ledger.Once(r.Context(), inbox.Message{Scope: "shop", Key: event.ID, Payload: body}, func(ctx context.Context, tx *sql.Tx) error {
			return book(ctx, tx, body)
		})
		switch {
		case errors.Is(err, inbox.ErrMismatch), errors.Is(err, inbox.ErrMessage):
			w.WriteHeader(http.StatusUnprocessableEntity) // it will not get better
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable) // send it again
		default:
			fmt.Println("fresh:", fresh)
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// Webhooks that an outbox sends over HTTP.
func Example_webhooks() {
	ctx := context.Background()
	db, ledger, closeDB := openLedger(ctx)
	defer closeDB()
	secret := webhook.Secret("whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 24))))
	receiver := httptest.NewTLSServer(hooks(ledger, webhook.Verifier{Secrets: []webhook.Secret{secret}}))
	defer receiver.Close()

	roots := x509.NewCertPool()
	roots.AddCert(receiver.Certificate())
	sink, err := httpsink.New(httpsink.To(httpsink.Endpoint{URL: receiver.URL, Secrets: []webhook.Secret{secret}}), &httpsink.Options{
		TLS: &tls.Config{RootCAs: roots}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	sendTwice(ctx, sink)
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true
	// fresh: false
	// balance: 100
}
