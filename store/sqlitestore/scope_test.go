package sqlitestore_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// twins returns two scopes whose keys are neighbours, because the hashes of their
// names begin alike.
func twins(t *testing.T) (one, two string) {
	t.Helper()
	known := map[[4]byte]string{}
	for i := range 1 << 20 {
		scope := fmt.Sprint("acct_", i)
		begins := [4]byte(sqlitestore.ID(retrysafe.Ref{Scope: scope}))
		if other, ok := known[begins]; ok {
			return other, scope
		}
		known[begins] = scope
	}
	t.Fatal("no two names are alike")
	return "", ""
}

// Scopes whose keys are neighbours do not see each other, page by page.
func TestNeighboursDoNotMix(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	one, two := twins(t)
	for i := range 10 {
		for _, scope := range []string{one, two} {
			r := fresh(fmt.Sprint(i))
			r.Scope = scope
			must(t, second(s.Create(t.Context(), r)))
		}
	}
	for _, scope := range []string{one, two} {
		for _, limit := range []int{1, 3, 10, 100} {
			for _, states := range [][]retrysafe.State{nil, {retrysafe.StateInProgress}, {retrysafe.StateInProgress, retrysafe.StateCompleted}} {
				all := pages(t, s, retrysafe.Query{Scope: scope, States: states, Limit: limit})
				if len(all) != 10 {
					t.Errorf("%s has %d keys in pages of %d", scope, len(all), limit)
				}
				for _, r := range all {
					if r.Scope != scope {
						t.Errorf("%s is shown a key of %s", scope, r.Scope)
					}
				}
			}
		}
	}
}
