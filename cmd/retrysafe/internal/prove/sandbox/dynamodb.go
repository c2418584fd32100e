package sandbox

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// newDynamoDB names a table that the first process of the check creates.
func newDynamoDB(at *storeurl.Address) *Sandbox {
	own := *at
	own.Table += "-prove-" + strings.ToLower(rand.Text()[:10])
	return &Sandbox{URL: own.DynamoDBURL(), remove: func(ctx context.Context) error { return own.DropTable(ctx) }}
}
