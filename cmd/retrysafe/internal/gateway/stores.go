package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// checkTimeout bounds the look at what is stored already.
const checkTimeout = 10 * time.Second

// wrapStore puts encryption and a cache before the store. The cache is in front, so
// that a replay from it opens nothing.
func (g *Gateway) wrapStore(c *config.Config, p *Parts) error {
	g.store = g.paced(p.Store)
	if c.Encryption.KeysFile != "" && p.Keyring == nil {
		return errors.New("encryption: the keys were not read") // never store in the clear what was to be sealed
	}
	if p.Keyring != nil {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		if err := sealed.Check(ctx, p.Store, p.Keyring); err != nil {
			return fmt.Errorf("encryption: %w", err)
		}
		var err error
		if g.store, err = sealed.New(g.store, p.Keyring); err != nil {
			return fmt.Errorf("encryption: %w", err)
		}
	}
	if c.Cache.Bytes >= 0 {
		g.cache = tiered.New(g.store, &tiered.Options{MaxBytes: c.Cache.Bytes, MaxAge: c.Cache.MaxAge})
		g.store = g.cache
		g.duties = append(g.duties, func(ctx context.Context) error { return g.followChanges(ctx, c.Cache.MaxAge) })
	}
	return nil
}

// followChanges keeps the cache up to date with what operators change on other nodes.
func (g *Gateway) followChanges(ctx context.Context, maxAge time.Duration) error {
	err := g.cache.Run(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		g.logger.Warn(fmt.Sprintf("retrysafe: an operator's change of a stored answer takes effect here after cache.max_age, %s, not within a second: this store has no list of changes", maxAge))
		return nil
	}
	return err
}
