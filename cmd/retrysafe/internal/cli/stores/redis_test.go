package stores_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// Commands work on a Redis server as on any other store, and say what it has not.
func TestRedisStores(t *testing.T) {
	t.Parallel()
	url := "redis://" + testservers.NewRedis(t).Addr()
	here := clitest.NewShell(t, url)
	here.Run("migrate status").Exits(1).Says("version  0", "pending  the marks of the store", "retrysafe migrate up")
	here.Run("keys list").Exits(3).Says("has no tables of retrysafe").InOneLine()
	here.Run("migrate up").Exits(0).Says("migrated from version 0 to 1")
	here.Run("migrate up").Exits(0).Says("nothing to do")
	here.Run("migrate status").Exits(0).Says("pending  none", "keys     0")
	here.Run("keys list").Exits(0).Says("no keys")
	here.Run("migrate print").Exits(2).Says("there is no schema").InOneLine()
	here.Run("outbox list").Exits(2).Says("has no outbox").InOneLine()

	o, err := storeurl.Open(t.Context(), url, nil)
	clitest.Must(t, err)
	defer o.Close()
	r := clitest.Put(t, o.Store, clitest.Dead("tenant-a", "k"))
	here.Run("keys list --dead").Exits(0).Says("tenant-a")
	here.Run("keys show tenant-a k").Exits(0).Says("tenant-a")
	here.Run("keys release tenant-a k --why checked --yes").Exits(0)
	if got := clitest.Load(t, o.Store, "tenant-a", "k"); got.Revision <= r.Revision {
		t.Errorf("the record is still at revision %d", got.Revision)
	}
	here.Run("keys copy --yes", url, url+"?prefix=other").Exits(0).Says("2 keys moved", "1 retryable", "is closed: point every configuration to")
	here.Run("keys list").Exits(3).Says("prefix=other").InOneLine()
	here.Run("keys list --store", url+"?prefix=other").Exits(0).Says("tenant-a")
}
