package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/identity"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/httpkey"
)

// A deployment is what a configuration works on: a store, and whose it is.
type deployment struct {
	at     *stores.Location
	opened *storeurl.Opened
	store  retrysafe.Store // that of opened, below encryption and cache
	id     string          // as the store has it
	empty  bool            // the store has neither an identity nor any record
}

// openStore opens the store of a configuration. In a reload a store that is not open yet
// must have the tables already: a reload never creates one, since its keys are not there.
func (b *builder) openStore(ctx context.Context, l *stores.Location) (*storeurl.Opened, func() error, error) {
	if b.running == nil || b.stores.has(l) {
		return b.stores.open(ctx, l, nil)
	}
	if l.Address.Kind != storeurl.Memory {
		if err := l.CheckSchema(ctx); err != nil {
			return nil, nil, b.running.notIn(l, err)
		}
	}
	return b.stores.open(ctx, l, &storeurl.Options{SkipMigrations: true})
}

// formerFields returns the choices of fields that records of the store were compared by. It
// notes whether the store is empty.
func (d *deployment) formerFields(ctx context.Context) ([]httpkey.Fields, error) {
	ctx, cancel := context.WithTimeout(ctx, stores.Timeout)
	defer cancel()
	noted, err := identity.Read(ctx, d.store)
	if errors.Is(err, identity.ErrNone) {
		var some []retrysafe.Record
		some, err = d.store.List(ctx, retrysafe.Query{Limit: 1})
		d.empty = err == nil && len(some) == 0
	}
	if err != nil {
		return nil, d.at.StoreError(err)
	}
	return noted.Choices(), nil
}

// join notes in the store that this configuration works on it. In a reload the store
// must be that of the deployment that is running, whatever its URL is now.
func (b *builder) join(ctx context.Context, d *deployment, c identity.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, stores.Timeout)
	defer cancel()
	was := b.running
	if was == nil {
		host, _ := os.Hostname() // without a name the note has none
		c.Adopt, c.By = b.adopt, "gateway on "+host
	} else if was.store != d.store {
		c.Of = []string{was.id}
		if now, err := identity.Read(ctx, was.store); err == nil {
			c.Of = append(c.Of, now.ID) // its keys may have come from another store since
		}
	}
	noted, adopted, err := identity.Join(ctx, d.store, c)
	different, differs := errors.AsType[*identity.DifferentError](err)
	switch {
	case differs:
		return d.refuse(different, was != nil)
	case errors.Is(err, identity.ErrNone), errors.Is(err, identity.ErrOther):
		return was.notIn(d.at, err)
	case err != nil:
		return d.at.StoreError(err)
	}
	if d.empty && d.at.Address.Kind != storeurl.Memory {
		b.logger.Warn("retrysafe: the store is new and has no keys; if this service had a store before, stop now: a retry of a request that it answered runs again", "store", d.at.Absolute())
	}
	if len(adopted) > 0 {
		b.logger.Warn("retrysafe: the store belongs to the settings of this configuration from now on, by --adopt-identity; keys that were stored under the former ones are not found any more",
			"store", d.at.String(), "by", c.By, "changed", identity.Describe(adopted))
	}
	d.id = noted.ID
	return nil
}

// refuse returns the error for settings that differ from those that the store has noted.
func (d *deployment) refuse(err *identity.DifferentError, reload bool) error {
	start := "start with"
	if reload {
		start = "restart with"
	}
	return exit.Usagef("the keys in %s were stored under other settings: %s. Under these they would not be found, and a retry of any of them would run again. "+
		"Undo the change; or %s --adopt-identity when no client retries a request that was sent before", d.at, identity.Describe(err.Differences), start)
}

// notIn returns the error for a reload that names a store without the keys of the
// deployment, because of err.
func (d *deployment) notIn(l *stores.Location, err error) error {
	why := fmt.Sprintf("%s has none of them", l)
	switch {
	case errors.Is(err, identity.ErrOther):
		why = fmt.Sprintf("%s belongs to another deployment", l)
	case !errors.Is(err, identity.ErrNone):
		why = exit.Plain(err)
	}
	return exit.Usagef("store: the keys of this gateway are in %s, and %s. A retry of any of them would run again. "+
		"Undo the change; or move them with: retrysafe keys copy %[1]s %[3]s, after which this reload is accepted; "+
		"or restart the gateway to leave them behind", d.at, why, l)
}
