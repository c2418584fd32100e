package gateway

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/redisurl"
	"github.com/retrysafe/retrysafe/store/redistier"
)

// withSharedCache returns the store with a Redis for finished answers in front of it, if the
// configuration names one, and what closes the connections to it. Encryption comes in front
// of it, so that Redis holds no plaintext.
func withSharedCache(c *config.Config, below retrysafe.Store) (retrysafe.Store, func() error, error) {
	if c.Cache.Shared == "" {
		return below, func() error { return nil }, nil
	}
	redisurl.QuietDriver()
	// Gateways over different stores that name the same Redis must not share answers.
	sum := sha256.Sum256([]byte(storeurl.Redact(c.Store)))
	prefix := "retrysafe-tier-" + hex.EncodeToString(sum[:8])
	s, err := redistier.Open(c.Cache.Shared, below, &redistier.Options{Prefix: prefix, MaxAge: c.Cache.MaxAge})
	if err != nil {
		return nil, nil, exit.Usagef("cache.shared: %v", err)
	}
	return s, s.Close, nil
}
