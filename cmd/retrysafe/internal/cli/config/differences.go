package config

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/identity"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// lookTimeout is how long the store may take to say what it has noted.
const lookTimeout = 2 * time.Second

// storeDifferences returns warnings of settings that are not those that the keys of the
// store were stored under. A store that is not there, cannot be reached or has no
// identity says nothing.
func storeDifferences(ctx context.Context, c *config.Config, keys *sealed.Keyring) (warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l, err := stores.Parse(c.Store)
	if err != nil || l.Address.Kind == storeurl.Memory || l.CheckSchema(ctx) != nil {
		return nil
	}
	opened, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	if err != nil {
		return nil
	}
	defer opened.Close()
	noted, err := identity.Read(ctx, opened.Store)
	if err != nil {
		return nil
	}
	for _, d := range identity.Of(c, keys).Differences(noted.Settings) {
		warnings = append(warnings, fmt.Sprintf("%s; its keys would not be found, so a gateway starts only with --adopt-identity, and a reload is refused", d))
	}
	return warnings
}
