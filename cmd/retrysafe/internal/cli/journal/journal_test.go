package journal_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// An api takes payments of those that have the token, once for each key.
type api struct {
	*httptest.Server
	mu   sync.Mutex
	paid map[string]string // body by key
}

func newAPI(t *testing.T) *api {
	a := &api{paid: map[string]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.paid[r.Header.Get("Idempotency-Key")] = string(body)
		a.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(a.Close)
	return a
}

// unfinished returns an operation that a process has left.
func unfinished(url, id string, age time.Duration) client.Operation {
	return client.Operation{
		ID: id, Key: "key-of-" + id, Method: http.MethodPost, URL: url, Header: http.Header{"Idempotency-Key": {"key-of-" + id}},
		Body: []byte(id), Profile: client.IETF, Begun: time.Now().Add(-age).UTC(),
	}
}

// left puts operations into a journal: two that can be sent, one that is too old.
func left(t *testing.T, j client.Journal, url string) {
	t.Helper()
	for id, age := range map[string]time.Duration{"order-1": time.Minute, "order-2": time.Second, "order-0": 30 * time.Hour} {
		_, _, err := j.Begin(t.Context(), unfinished(url, id, age))
		clitest.Must(t, err)
	}
}

func TestJournalOfAFile(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := filepath.Join(t.TempDir(), "payments.journal")
	j, err := journal.Open(file, nil)
	clitest.Must(t, err)
	left(t, j, a.URL+"/payments")
	here := clitest.NewShell(t, "").With("RETRYSAFE_JOURNAL", file).With("TOKEN", "Bearer secret")
	here.Run("journal list").Exits(0).Says("order-1", "unfinished", "POST "+a.URL+"/payments").Hides("key-of-order-1") // while its program runs
	here.Run("journal resume").Exits(3).Says("in use by process", "only retrysafe journal list works").InOneLine()
	here.Run("journal abandon order-1 --why x --yes").Exits(3).InOneLine()
	clitest.Must(t, j.Close())

	here.Run("journal resume").Exits(4).Says("order-1: ", "the last answer was 401", "it may have been executed", "0 operations were answered", "the outcome of 3 operations is not known")
	here.Run("journal resume --header-env Authorization=TOKEN").Exits(4).Says("order-1: answered 201", "order-2: answered 201", "order-0: ", "its key is too old", "2 operations were answered")
	if len(a.paid) != 2 || a.paid["key-of-order-1"] != "order-1" || a.paid["key-of-order-2"] != "order-2" {
		t.Errorf("paid %v", a.paid)
	}
	here.Run("journal list").Exits(0).Says("order-0", "30 h ago").Hides("order-1", "order-2")
	here.Run("journal list --all --long").Exits(0).Says("order-1", "answered", "201", "key-of-order-1")
	here.Run("journal list --all --format json").Exits(0).Says(`"id":"order-1","state":"answered","key":"key-of-order-1"`, `"status":201`, `"body_size":7`)

	here.Run("journal abandon order-0").Exits(2).Says("--why").InOneLine()
	here.Run("journal abandon order-0 --why found").Exits(2).Says("--yes").InOneLine()
	here.Typing("no\n").Run("journal abandon order-0 --why found").Exits(1).Says("never be sent again", "not confirmed")
	here.Typing("yes\n").Run("journal abandon order-0 --why found").Exits(0).Says("order-0: abandoned")
	here.Run("journal abandon order-0 --why found --yes").Exits(1).Says("abandoned already", "--forget").InOneLine()
	here.Run("journal list --all").Exits(0).Says("anna: found")
	here.Run("journal abandon order-0 --why found --yes --forget").Exits(0).Says("order-0: forgotten")
	here.Run("journal abandon order-0 --why found --yes").Exits(1).Says("there is no operation order-0").InOneLine()
	here.Run("journal list").Exits(0).Says("none")
	here.Run("journal resume").Exits(0).Says("0 operations were answered")
}

func TestJournalOfADatabase(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := filepath.Join(t.TempDir(), "payments.db")
	db, err := sql.Open("sqlite", file)
	clitest.Must(t, err)
	t.Cleanup(func() { db.Close() })
	j, err := journal.NewSQL(db, nil)
	clitest.Must(t, err)
	clitest.Must(t, j.CreateTable(t.Context()))
	left(t, j, a.URL+"/payments")
	here := clitest.NewShell(t, "").With("TOKEN", "Bearer secret")
	at := fmt.Sprintf(" --journal sqlite:%s", file)
	here.Run("journal resume --window 48h --header-env Authorization=TOKEN"+at).Exits(0).Says("order-0: answered 201", "3 operations were answered")
	here.Run("journal list --all"+at).Exits(0).Says("order-2", "201")
	here.Run("journal list --table other" + at).Exits(3).Says("no such table").InOneLine()
	here.Run("journal list --table 'a b'" + at).Exits(2).Says("not the name of a table").InOneLine()
}

func TestBadJournals(t *testing.T) {
	t.Parallel()
	here := clitest.NewShell(t, "")
	here.Run("journal list").Exits(2).Says("--journal FILE").InOneLine()
	for _, verb := range []string{"list", "resume", "abandon x --why y"} {
		for _, kind := range []string{"", "sqlite:"} {
			here.Run("journal " + verb + " --journal " + kind + filepath.Join(t.TempDir(), "none")).Exits(3).Says("there is no journal").InOneLine()
		}
	}
	here.Run("journal list --journal journal_test.go").Exits(3).Says("not a journal of retrysafe").InOneLine()
	here.Run("journal list --journal postgres://me:hunter2@127.0.0.1:1/x").Exits(3).Says("postgres journal").Hides("hunter2").InOneLine()
	here.Run("journal resume --journal journal_test.go --header-env Authorization").Exits(2).Says("HEADER=VARIABLE").InOneLine()
	here.Run("journal resume --journal journal_test.go --header-env A=NONE").Exits(2).Says("NONE is not set").InOneLine()
	here.Run("journal resume --journal journal_test.go --window 0s").Exits(2).InOneLine()
}

// The commands of docs/client.md, on an operation whose API does not answer.
func TestDocsCommands(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.Close()
	file := filepath.Join(t.TempDir(), "payments.journal")
	j, err := journal.Open(file, nil)
	clitest.Must(t, err)
	_, _, err = j.Begin(t.Context(), unfinished(a.URL, "order-17", time.Minute))
	clitest.Must(t, err)
	clitest.Must(t, j.Close())
	here := clitest.NewShell(t, "").With("PAYMENTS_TOKEN", "Bearer secret")
	exits := map[string]int{"list": 0, "resume": 4, "abandon": 0}
	for line := range strings.Lines(pages.Blocks(pages.Read(t, "docs/client.md"), "sh")[0]) {
		line = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(line), "retrysafe "), "payments.journal", file)
		verb := strings.Fields(line)[1]
		switch verb {
		case "resume":
			line += " --timeout 1s"
		case "abandon":
			line += " --yes"
		}
		here.Run(line).Exits(exits[verb]).Says("order-17")
		delete(exits, verb)
	}
	if len(exits) > 0 {
		t.Errorf("docs/client.md does not show %v", exits)
	}
}
