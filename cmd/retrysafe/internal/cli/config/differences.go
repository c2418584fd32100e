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

// lookAtStore returns what a start would warn of the store, why a gateway could not open it,
// and settings that are not those that its keys were stored under. The note, if there is one,
// says that there is no store yet. A store that cannot be reached says nothing, and one
// without an identity nothing of settings.
func lookAtStore(ctx context.Context, c *config.Config, keys *sealed.Keyring) (warnings []string, note string) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l, err := stores.Parse(c.Store)
	if err != nil || l.Address.Kind == storeurl.Memory {
		return nil, ""
	}
	warnings = l.Address.Warnings()
	if why := l.NoFolder(); why != "" {
		return append(warnings, "store: a gateway could not start with it: "+why), ""
	}
	status, err := l.Status(ctx)
	if l.Missing() || err == nil && status.Version == 0 {
		return warnings, fmt.Sprintf("the store %s does not exist yet: the first gateway that starts with it creates it, without any keys", l.Absolute())
	}
	opened, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	if stores.IsClosed(err) {
		warnings = append(warnings, "store: a gateway could not start with it: "+err.Error())
	}
	if err != nil {
		return warnings, ""
	}
	defer opened.Close()
	if l.CheckSchema(ctx) != nil {
		return warnings, ""
	}
	warnings = append(warnings, storeurl.Caveats(ctx, opened.Store)...)
	noted, err := identity.Read(ctx, opened.Store)
	if err != nil {
		return warnings, ""
	}
	for _, d := range identity.Of(c, keys).Differences(noted.Settings) {
		warnings = append(warnings, fmt.Sprintf("%s; its keys would not be found, so a gateway starts only with --adopt-identity, and a reload is refused", d))
	}
	return warnings, ""
}
