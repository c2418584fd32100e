package console_test

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

var records = flag.Int("console.records", 20_000, "how many records BenchmarkPages has in the store; the figures of docs/console.md: 1,000,000")

// BenchmarkPages answers pages over a store with many records:
//
//	go test ./console -run '^$' -bench Pages -benchtime 20x -console.records 1000000 -timeout 30m
func BenchmarkPages(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "keys.db"), nil)
		must(b, err)
		defer s.Close()
		benchPages(b, s)
	})
	b.Run("postgres", func(b *testing.B) {
		s, err := pgstore.Open(b.Context(), testservers.Shared(b), nil)
		must(b, err)
		defer s.Close()
		benchPages(b, s)
	})
}

func benchPages(b *testing.B, s retrysafe.Store) {
	b.Helper()
	fillStore(b, s, *records)
	service, err := operator.New(s, nil)
	must(b, err)
	h, err := console.New(console.Options{Service: service, Tokens: []console.Token{{Name: "anna", Role: "act", Secret: anna}}, Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	defer h.Close(b.Context())
	hash := retrysafe.HashKey(benchKey(*records / 2))
	for _, page := range []struct{ name, path string }{
		{"overview", "/"},
		{"list", "/keys"},
		{"list unknown", "/keys?state=unknown"},
		{"list by tenant and operation", "/keys?tenant=tenant-7&operation=POST+%2Fpayments"},
		{"list in progress", "/keys?state=in_progress"},
		{"one key", "/key?" + url.Values{"scope": {benchScope(*records / 2)}, "key": {benchKey(*records / 2)}}.Encode()},
		{"search a key of a known scope", "/search?stay=1&q=" + benchKey(*records/2)},
		{"search a hash", "/search?q=" + hash},
		{"search nothing", "/search?q=no-such-thing"},
		{"reconciliation", "/reconciliation"},
	} {
		b.Run(page.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				get(b, h, page.path)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/slowest")
		})
	}
}

func get(b *testing.B, h http.Handler, path string) {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+anna)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	if w.Code != http.StatusOK || strings.Contains(string(text), "did not answer") {
		b.Fatalf("%s: %d %s", path, w.Code, text)
	}
}

func benchKey(i int) string   { return fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i) }
func benchScope(i int) string { return fmt.Sprintf("tenant-%d", i%50) }

// fillStore stores completed records, two thousand unknown outcomes and a few that run.
func fillStore(b *testing.B, s retrysafe.Store, n int) {
	b.Helper()
	next := make(chan int, 1024)
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := range next {
				w := retrysafe.Write{Term: 24 * time.Hour, Record: retrysafe.Record{
					Ref: retrysafe.Ref{Scope: benchScope(i), Key: benchKey(i)}, Operation: "POST /payments", Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{1}},
					State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{byte(i), byte(i >> 8), byte(i >> 16), 1}, Attempt: 1, Retain: 24 * time.Hour,
					Result: &retrysafe.Result{Status: 201, Body: []byte(`{"id":"pay_0123456789","amount":1200,"currency":"EUR","status":"paid"}`)},
				}}
				switch {
				case i < 2000:
					w.State, w.Result, w.Reason = retrysafe.StateUnknown, nil, fmt.Sprintf("the handler answered %d", 500+i%3)
				case i < 2050:
					w.State, w.Result = retrysafe.StateInProgress, nil
				}
				if _, err := s.Create(b.Context(), w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
