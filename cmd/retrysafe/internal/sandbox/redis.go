package sandbox

import (
	"context"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// newRedis names a prefix that the first process that opens it prepares.
func newRedis(address string, at *storeurl.Address, purpose string) *Sandbox {
	address, query, _ := strings.Cut(address, "?")
	q, _ := url.ParseQuery(query) // it was parsed before
	prefix := "retrysafe-" + purpose + "-" + random()
	q.Set("prefix", prefix)
	q.Del("existing")
	return &Sandbox{URL: address + "?" + q.Encode(), What: "the prefix " + prefix, remove: func(ctx context.Context) error {
		return redisstore.Destroy(ctx, at.URL, prefix)
	}}
}
