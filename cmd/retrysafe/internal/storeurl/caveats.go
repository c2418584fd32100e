package storeurl

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

// Caveats says how an open store can lose an acknowledged answer, or hide it from a retry,
// where the store itself can tell. A store that does not answer has other errors.
func Caveats(ctx context.Context, s retrysafe.Store) []string {
	return redisCaveats(ctx, s)
}
