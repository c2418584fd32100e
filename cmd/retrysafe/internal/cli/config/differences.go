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

// storeWarnings returns what a start would warn of the store, and settings that are not those
// that its keys were stored under. A store that is not there or cannot be reached says
// nothing, and one without an identity nothing of settings.
func storeWarnings(ctx context.Context, c *config.Config, keys *sealed.Keyring) (warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l, err := stores.Parse(c.Store)
	if err != nil || l.Address.Kind == storeurl.Memory {
		return nil
	}
	warnings = l.Address.Warnings()
	if l.CheckSchema(ctx) != nil {
		return warnings
	}
	opened, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	if err != nil {
		return warnings
	}
	defer opened.Close()
	warnings = append(warnings, storeurl.Caveats(ctx, opened.Store)...)
	noted, err := identity.Read(ctx, opened.Store)
	if err != nil {
		return warnings
	}
	for _, d := range identity.Of(c, keys).Differences(noted.Settings) {
		warnings = append(warnings, fmt.Sprintf("%s; its keys would not be found, so a gateway starts only with --adopt-identity, and a reload is refused", d))
	}
	return warnings
}
