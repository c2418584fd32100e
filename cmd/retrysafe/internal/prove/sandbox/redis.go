package sandbox

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// newRedis names a prefix that the first process of the check prepares.
func newRedis(address string, at *storeurl.Address) *Sandbox {
	address, query, _ := strings.Cut(address, "?")
	q, _ := url.ParseQuery(query) // it was parsed before
	prefix := "retrysafe-prove-" + strings.ToLower(rand.Text()[:10])
	q.Set("prefix", prefix)
	q.Del("existing")
	return &Sandbox{URL: address + "?" + q.Encode(), remove: func(ctx context.Context) error {
		return redisstore.Destroy(ctx, at.URL, prefix)
	}}
}
