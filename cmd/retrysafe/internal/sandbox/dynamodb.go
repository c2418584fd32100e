package sandbox

import (
	"context"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// newDynamoDB names a table that the first process that opens it creates.
func newDynamoDB(at *storeurl.Address, purpose string) *Sandbox {
	own := *at
	own.Table += "-" + purpose + "-" + random()
	return &Sandbox{URL: own.DynamoDBURL(), What: "the table " + own.Table, remove: func(ctx context.Context) error { return own.DropTable(ctx) }}
}
