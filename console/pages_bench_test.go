package console_test

import (
	"crypto/rand"
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

var (
	records      = flag.Int("console.records", 20_000, "how many records BenchmarkPages has in the store; the figures of docs/console.md: 1,000,000")
	keptSQLite   = flag.String("console.sqlite", "", "file of a store that BenchmarkPages fills once and keeps")
	keptPostgres = flag.String("console.postgres", "", "URL of a database that BenchmarkPages fills once and keeps")
)

// BenchmarkPages answers pages over a store with many records. A first run fills the stores,
// a second one measures:
//
//	go test ./console -run '^$' -bench Pages -benchtime 20x -console.records 1000000 -timeout 30m \
//		-console.sqlite /tmp/million.db -console.postgres postgres://postgres@127.0.0.1:5433/postgres
func BenchmarkPages(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		path := *keptSQLite
		if path == "" {
			path = filepath.Join(b.TempDir(), "keys.db")
		}
		s, err := sqlitestore.Open(b.Context(), path, nil)
		must(b, err)
		defer s.Close()
		benchPages(b, s)
	})
	b.Run("postgres", func(b *testing.B) {
		url := *keptPostgres
		if url == "" {
			url = testservers.Shared(b)
		}
		s, err := pgstore.Open(b.Context(), url, nil)
		must(b, err)
		defer s.Close()
		benchPages(b, s)
	})
}

func benchPages(b *testing.B, s retrysafe.Store) {
	b.Helper()
	if before, err := s.List(b.Context(), retrysafe.Query{Limit: 1}); err != nil || len(before) == 0 {
		must(b, err)
		fillStore(b, s, *records)
	}
	fillRecent(b, s, min(20_000, *records/50))
	service, err := operator.New(s, nil)
	must(b, err)
	h, err := console.New(console.Options{Service: service, Tokens: []console.Token{{Name: "anna", Role: "act", Secret: anna}}, Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	defer h.Close(b.Context())
	hash := retrysafe.HashKey(benchKey(*records / 2))
	for _, page := range []struct{ name, path string }{
		{"first overview", "/"}, // of a process that knows nothing of the store yet
		{"list at once", "/keys"},
		{"overview", "/"},
		{"list", "/keys"},
		{"list unknown", "/keys?state=unknown"},
		{"list by tenant and operation", "/keys?tenant=tenant-7&operation=POST+%2Fpayments"},
		{"list in progress", "/keys?state=in_progress"},
		{"list in progress, due", "/keys?state=in_progress&due=1"},
		{"list not final", "/keys?state=in_progress&state=unknown&state=accepted"},
		{"one key", "/key?" + url.Values{"scope": {benchScope(*records / 2)}, "key": {benchKey(*records / 2)}}.Encode()},
		{"search a key of a known scope", "/search?stay=1&q=" + benchKey(*records/2)},
		{"search a hash", "/search?q=" + hash},
		{"search nothing", "/search?q=no-such-thing"},
		{"reconciliation", "/reconciliation"},
		{"audit", "/audit"},
	} {
		b.Run(page.name, func(b *testing.B) {
			var took []time.Duration
			offered := 0
			for b.Loop() {
				began := time.Now()
				text := get(b, h, page.path)
				took = append(took, time.Since(began))
				if strings.Contains(text, "data-patient") {
					offered++ // the page has no list, and offers to wait for it
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/slowest")
			b.ReportMetric(float64(offered), "to-wait")
		})
	}
}

func get(b *testing.B, h http.Handler, path string) string {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+anna)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	if w.Code != http.StatusOK || strings.Contains(string(text), "did not answer") {
		b.Fatalf("%s: %d %s", path, w.Code, text)
	}
	return string(text)
}

func benchKey(i int) string   { return fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i) }
func benchScope(i int) string { return fmt.Sprintf("tenant-%d", i%50) }

// fillStore stores completed records, two thousand unknown outcomes and a few that run.
func fillStore(b *testing.B, s retrysafe.Store, n int) {
	b.Helper()
	b.Logf("fills the store with %d records", n)
	each(b, n, func(i int) error {
		w := benchWrite(i, benchKey(i))
		switch {
		case i < 2000:
			w.State, w.Result, w.Reason = retrysafe.StateUnknown, nil, fmt.Sprintf("the service answered %d", 500+i%3)
		case i < 2050:
			w.State, w.Result = retrysafe.StateInProgress, nil
		}
		_, err := s.Create(b.Context(), w)
		return err
	})
}

// fillRecent stores keys that were reserved and answered just now: as many as a gateway with
// 300 new keys in a second has within a lease of a minute.
func fillRecent(b *testing.B, s retrysafe.Store, n int) {
	b.Helper()
	run := rand.Text()
	each(b, n, func(i int) error {
		w := benchWrite(i, fmt.Sprint(run, i))
		answered := w
		w.State, w.Result, w.Term = retrysafe.StateInProgress, nil, 4*time.Minute
		got, err := s.Create(b.Context(), w)
		if err == nil {
			answered.Expect = retrysafe.Fence{Revision: got.Revision, Owner: got.Owner}
			_, err = s.Swap(b.Context(), answered)
		}
		return err
	})
}

// benchWrite returns a record with an answer.
func benchWrite(i int, key string) retrysafe.Write {
	return retrysafe.Write{Term: 24 * time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: benchScope(i), Key: key}, Operation: "POST /payments", Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{1}},
		State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{byte(i), byte(i >> 8), byte(i >> 16), 1}, Attempt: 1, Retain: 24 * time.Hour,
		Result: &retrysafe.Result{Status: 201, Body: []byte(`{"id":"pay_0123456789","amount":1200,"currency":"EUR","status":"paid"}`)},
	}}
}

// each calls do for the numbers up to n, many at a time.
func each(b *testing.B, n int, do func(i int) error) {
	b.Helper()
	next := make(chan int, 1024)
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
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
