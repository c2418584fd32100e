package storeurl_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// hostile is text that has a meaning to SQL, to a shell, to Redis, to a terminal, or to
// code that cuts at a separator or at a zero byte.
var hostile = []string{
	`'`, `"`, `''`, "\\", "\x00", "\x1f", "a\x00b", "a", "A", "ä", "\xff\xfe", "%s%n", "$1", "?", ":a", "@a", "--", "/*", ";",
	`'; DROP TABLE retrysafe_keys; --`, `" OR ""="`, `' OR '1'='1`, `\'; DELETE FROM retrysafe_keys; --`, `$$; DROP TABLE retrysafe_keys; $$`,
	"{a}b", "{b}a", "*", "a b", "a\r\nb", "\r\nDEL a\r\n", "\x1b[31m", "`id`", "$(id)", "${HOME}", "../../etc/passwd", strings.Repeat("'", 1000), "",
}

// TestW85_TextIsNeverCode: whatever scopes, keys, operations and reasons say, they are
// kept as they are, each for itself, and nothing else happens.
func TestW85_TextIsNeverCode(t *testing.T) {
	t.Parallel()
	dynamo, _ := newDynamoDB(t)
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	for kind, address := range map[string]string{
		"sqlite":              "sqlite:" + filepath.Join(t.TempDir(), `'; DROP TABLE retrysafe_keys; --.db`),
		"dynamodb":            dynamo,
		"postgres":            pg.URL("postgres") + "&schema=" + `%22%3B+DROP+TABLE+retrysafe_keys%3B+--`,
		"postgres, pgbouncer": pg.URL("postgres") + "&schema=" + `%27%3B+DROP+SCHEMA+public%3B+--&pgbouncer=true`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o, err := storeurl.Open(t.Context(), address, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			want := map[retrysafe.Ref]retrysafe.Record{}
			for i, scope := range hostile {
				for j, key := range hostile {
					if scope == "" || key == "" || (i+j)%3 != 0 && i != j {
						continue
					}
					w := retrysafe.Write{Term: 1 << 40, Record: retrysafe.Record{
						Ref: retrysafe.Ref{Scope: scope, Key: key}, Owner: retrysafe.Owner{byte(i), byte(j), 1}, State: retrysafe.StateInProgress,
						Version: retrysafe.RecordVersion, Attempt: 1, Operation: key + scope,
					}}
					got, err := o.Store.Create(t.Context(), w)
					if err != nil {
						t.Fatalf("create %q, %q: %v", scope, key, err)
					}
					next := got.Update()
					next.State, next.Reason, next.ProviderRef, next.Term = retrysafe.StateUnknown, scope, key, 1<<40
					if got, err = o.Store.Swap(t.Context(), next); err != nil {
						t.Fatalf("swap %q, %q: %v", scope, key, err)
					}
					want[w.Ref] = got
				}
			}
			for ref, r := range want {
				got, err := o.Store.Load(t.Context(), ref)
				if err != nil || got.Ref != ref || got.Operation != r.Operation || got.Reason != r.Reason || got.ProviderRef != r.ProviderRef || got.Owner != r.Owner {
					t.Errorf("%q: %+v, %v", ref, got, err)
				}
			}
			for _, scope := range hostile[:len(hostile)-1] {
				list, err := o.Store.List(t.Context(), retrysafe.Query{Scope: scope, Limit: retrysafe.MaxList})
				if err != nil {
					t.Fatal(err)
				}
				for i := range list {
					if list[i].Scope != scope {
						t.Errorf("the list of %q has %q", scope, list[i].Ref)
					}
				}
			}
			all, err := o.Store.List(t.Context(), retrysafe.Query{Limit: retrysafe.MaxList})
			if err != nil || len(all) != len(want) {
				t.Errorf("%d records, want %d: %v", len(all), len(want), err)
			}
		})
	}
}
