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

// lookAtStore returns warnings of a store that a gateway could not open, and of settings
// that are not those that its keys were stored under. The note, if there is one, says that
// there is no store yet. A store that cannot be reached or has no identity says nothing.
func lookAtStore(ctx context.Context, c *config.Config, keys *sealed.Keyring) (warnings []string, note string) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l, err := stores.Parse(c.Store)
	if err != nil || l.Address.Kind == storeurl.Memory {
		return nil, ""
	}
	if why := l.NoFolder(); why != "" {
		return []string{"store: a gateway could not start with it: " + why}, ""
	}
	status, err := l.Status(ctx)
	if l.Missing() || err == nil && status.Version == 0 {
		return nil, fmt.Sprintf("the store %s does not exist yet: the first gateway that starts with it creates it, without any keys", l.Absolute())
	}
	if err != nil || l.CheckSchema(ctx) != nil {
		return nil, ""
	}
	opened, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	if err != nil {
		return nil, ""
	}
	defer opened.Close()
	noted, err := identity.Read(ctx, opened.Store)
	if err != nil {
		return nil, ""
	}
	for _, d := range identity.Of(c, keys).Differences(noted.Settings) {
		warnings = append(warnings, fmt.Sprintf("%s; its keys would not be found, so a gateway starts only with --adopt-identity, and a reload is refused", d))
	}
	return warnings, ""
}
