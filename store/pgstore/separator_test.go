package pgstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// TestW75_CutsOfATextAreDifferentRows: wherever a text is cut into scope and key, also
// a text that looks like the length before a scope, the row is another one.
func TestW75_CutsOfATextAreDifferentRows(t *testing.T) {
	t.Parallel()
	rows := map[string]retrysafe.Ref{}
	for _, text := range []string{"a:b:c", "a\x1fb\x1fc", "1:a1:b", "aaaa", "\x00\x00\x00\x01a", "\x00\x00\x00\x00\x00", "\x00\x00\x00\x01\x00\x00\x00\x01a"} {
		for i := range len(text) + 1 {
			ref := retrysafe.Ref{Scope: text[:i], Key: text[i:]}
			id := pgstore.ID(ref)
			row := string(id[4:]) // without the hash of the scope alone, which is short
			if other, taken := rows[row]; taken {
				t.Errorf("%q has the row of %q", ref, other)
			}
			rows[row] = ref
		}
	}
}
