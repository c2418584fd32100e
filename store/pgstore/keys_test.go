package pgstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Scopes and keys are bytes: any byte, also those that no header lets through and
// that a text of PostgreSQL refuses, at any place, up to the longest. Each is a key
// of its own and gets its own answer, and every store agrees.
func TestKeysOfAnyBytes(t *testing.T) {
	t.Parallel()
	var refs []retrysafe.Ref
	for b := range 256 {
		c := string([]byte{byte(b)})
		refs = append(refs, retrysafe.Ref{Scope: "s", Key: c}, retrysafe.Ref{Scope: c, Key: "key"}, retrysafe.Ref{Scope: "s", Key: "a" + c + "b"})
	}
	for _, text := range []string{
		strings.Repeat("k", 255), strings.Repeat("k", 254) + "K", strings.Repeat("\xff", 255), strings.Repeat("\x00", 255), strings.Repeat("ü", 127),
		"\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x00", "a\x00\x00", "\x00a", `\x00`, `\000`, "'; DROP TABLE retrysafe_keys; --", "$1", "{keys}", "%s",
		strings.Repeat("k", 1024), "8e03978e-40d5-43dd-bc93-6894a57f9324", "8E03978E-40D5-43DD-BC93-6894A57F9324", "8e03978e40d543ddbc936894a57f9324",
	} {
		refs = append(refs, retrysafe.Ref{Scope: "s", Key: text}, retrysafe.Ref{Scope: text, Key: "k"}, retrysafe.Ref{Scope: text, Key: text})
	}
	pg := open(t, testservers.Shared(t), nil)
	lite, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	must(t, err)
	defer lite.Close()
	for name, s := range map[string]retrysafe.Store{"memstore": memstore.New(nil), "sqlitestore": lite, "pgstore": pg} {
		e, err := retrysafe.New(s, unhurried)
		must(t, err)
		for _, replayed := range []bool{false, true} {
			var wg sync.WaitGroup
			for c := range 16 {
				wg.Go(func() {
					for i := c; i < len(refs); i += 16 {
						out, err := e.Do(t.Context(), retrysafe.Call{Ref: refs[i]}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
							return retrysafe.Result{Status: 201, Body: fmt.Appendf(nil, "%q", refs[i])}, nil
						})
						if err != nil || out.Replayed != replayed || string(out.Body) != fmt.Sprintf("%q", refs[i]) {
							t.Errorf("%s: %q gets %q, replayed: %t, %v", name, refs[i], out.Body, out.Replayed, err)
						}
					}
				})
			}
			wg.Wait()
		}
		seen := map[retrysafe.Ref]bool{}
		all, err := s.List(t.Context(), retrysafe.Query{Limit: retrysafe.MaxList})
		must(t, err)
		for _, r := range all {
			seen[r.Ref] = true
		}
		for _, ref := range refs {
			if !seen[ref] {
				t.Errorf("%s does not list %q", name, ref)
			}
		}
		if len(all) != len(refs) {
			t.Errorf("%s lists %d keys of %d", name, len(all), len(refs))
		}
	}
	// In one commit too, where a driver sends them.
	e, err := retrysafe.New(pg, unhurriedBy(txPolicy))
	must(t, err)
	for _, ref := range refs {
		ref.Scope += " in one commit"
		if len(ref.Scope) > 1024 {
			continue
		}
		for _, replayed := range []bool{false, true} {
			out, err := retrysafe.DoTx(t.Context(), e, pg, retrysafe.Call{Ref: ref}, func(context.Context, pgx.Tx) (retrysafe.Result, error) {
				return retrysafe.Result{Status: 201, Body: fmt.Appendf(nil, "%q", ref)}, nil
			})
			if err != nil || out.Replayed != replayed || string(out.Body) != fmt.Sprintf("%q", ref) {
				t.Errorf("%q gets %q, replayed: %t, %v", ref, out.Body, out.Replayed, err)
			}
		}
	}
}
