package stores_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
)

// Commands work on a table of DynamoDB as on any other store, and say what it has not.
func TestDynamoDBStores(t *testing.T) {
	t.Parallel()
	fake := dynamofake.New()
	t.Cleanup(fake.Close)
	url := "dynamodb://eu-central-1/keys?endpoint=" + fake.URL
	here := clitest.NewShell(t, url)
	here.Run("migrate status").Exits(1).Says("version  0", "pending  the table keys", "retrysafe migrate up")
	here.Run("keys list").Exits(3).Says("has no tables of retrysafe").InOneLine()
	here.Run("migrate up").Exits(0).Says("migrated from version 0 to 1")
	here.Run("migrate up").Exits(0).Says("nothing to do")
	here.Run("migrate status").Exits(0).Says("pending  none", "keys     about 0")
	here.Run("keys list").Exits(0).Says("no keys")
	here.Run("migrate print").Exits(2).Says("there is no schema").InOneLine()
	here.Run("outbox list").Exits(2).Says("has no outbox").InOneLine()
	here.Run("keys copy --dry-run", url, "dynamodb://eu-central-1/other?endpoint="+fake.URL).Exits(0).Says("0 keys could move")

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
}
