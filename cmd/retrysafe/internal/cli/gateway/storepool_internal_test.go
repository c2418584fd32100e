package gateway

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
)

// A store that was left by a reload, or opened for one that was refused, is opened anew
// for the next configuration that names it.
func TestStoreThatWasLeftIsOpenedAnew(t *testing.T) {
	t.Parallel()
	var pool storePool
	at := &stores.Location{URL: "sqlite:" + filepath.Join(t.TempDir(), "keys.db")}
	for range 2 {
		first, leave, err := pool.open(t.Context(), at, nil)
		if err != nil {
			t.Fatal(err)
		}
		second, leaveToo, err := pool.open(t.Context(), at, nil)
		if err != nil || second != first {
			t.Fatalf("two that use the store at the same time have two: %v", err)
		}
		if err := leave(); err != nil || !pool.has(at) {
			t.Fatalf("the store is closed while it is used: %v", err)
		}
		if _, err := second.Store.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: "none"}); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Load = %v, want not found", err)
		}
		if err := leaveToo(); err != nil || pool.has(at) {
			t.Fatalf("a store that none uses is kept: %v", err)
		}
	}
}
