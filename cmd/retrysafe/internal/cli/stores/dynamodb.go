package stores

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// dynamoStatus returns whether there is a table. Its layout has one version so far.
func (l *Location) dynamoStatus(ctx context.Context) (Status, error) {
	const version = 1
	opened, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	switch {
	case errors.Is(err, dynamostore.ErrNoTable):
		return Status{Newest: version, Pending: []string{"the table " + l.Address.Table}}, nil
	case err != nil:
		return Status{}, l.StoreError(err)
	}
	defer func() { _ = opened.Close() }() // nothing was written
	status := Status{Version: version, Newest: version, Estimated: true}
	if s, ok := opened.Store.(*dynamostore.Store); ok {
		d, err := s.Durability(ctx)
		if err != nil {
			return Status{}, l.StoreError(err)
		}
		status.Keys = d.Keys
	}
	return status, nil
}
