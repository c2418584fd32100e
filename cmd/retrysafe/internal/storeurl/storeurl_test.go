package storeurl_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestEachKindOpensAndKeepsARecord(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	maria := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true})
	for kind, address := range map[string]string{
		"memory":   "memory:",
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "a b?.db"),
		"postgres": pg.URL("postgres") + "&schema=elsewhere",
		"mysql":    "mysql://root@" + maria.Addr() + "/test",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o, err := storeurl.Open(t.Context(), address, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if o.Kind != kind || o.Shared == (kind == "memory") || o.Outbox == nil {
				t.Errorf("opened %+v", o)
			}
			ref := retrysafe.Ref{Scope: "s", Key: "k"}
			if _, err := o.Store.Create(t.Context(), retrysafe.Write{Record: retrysafe.Record{Ref: ref, Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1}}); err != nil {
				t.Fatal(err)
			}
			if r, err := o.Store.Load(t.Context(), ref); err != nil || r.State != retrysafe.StateInProgress {
				t.Errorf("Load = %v, %v", r.State, err)
			}
		})
	}
}

// A server of PostgreSQL that is set to lose answers is warned of, as those of the other
// stores are.
func TestPostgresThatLosesAnswersIsNamed(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	o, err := storeurl.Open(t.Context(), pg.URL("postgres"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if got := storeurl.Caveats(t.Context(), o.Store); len(got) != 0 {
		t.Errorf("a durable server has the caveats %q", got)
	}
	if err := pg.Configure(t.Context(), "full_page_writes", "off"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for deadline := time.Now().Add(time.Minute); len(got) == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got = storeurl.Caveats(t.Context(), o.Store) // a session reads its settings before its next statement
	}
	if len(got) != 1 || !strings.Contains(got[0], "class D: full_page_writes is off") {
		t.Errorf("a server with full_page_writes off has the caveats %q", got)
	}
}

func TestBadAddressesTeach(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                             "a store is",
		"keys.db":                      "sqlite:FILE",
		"sqlite:":                      "needs a file",
		"memory:keys":                  "nothing behind the colon",
		"mysql://u:p@h":                "without a database",
		"mysql:///db":                  "without a host",
		"mysql://u:se cret@h/db":       "%40",
		"mysql://u:p@h/db?tls=absent":  "parameter that the driver refuses",
		"oracle://h/db":                "no store of the kind",
		"postgres://u:se cret@h/db":    "%40",
		"postgres://h/db?pgbouncer=x":  "true or false",
		"postgres://h/db?anyserver=1x": "anyserver=1x in a PostgreSQL URL: true or false",
	} {
		_, err := storeurl.Parse(address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %q in it", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestRedactTellsNoPassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"postgres://u:secret@h/db", "mysql://u:secret@h/db", "postgres://h/db?user=u&password=secret", "postgres://h/db?sslpassword=secret", "host=h password=secret"} {
		if got := storeurl.Redact(address); strings.Contains(got, "secret") {
			t.Errorf("Redact = %s", got)
		}
	}
}
