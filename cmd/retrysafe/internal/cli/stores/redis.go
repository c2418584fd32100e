package stores

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// redisStatus returns whether the server has data of the store. Its layout has one version
// so far.
func (l *Location) redisStatus(ctx context.Context) (Status, error) {
	const version = 1
	opened, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	switch {
	case errors.Is(err, redisstore.ErrNoData) && !l.Address.Redis.MustExist:
		return Status{Newest: version, Pending: []string{"the marks of the store"}}, nil
	case err != nil:
		return Status{}, l.StoreError(err)
	}
	defer func() { _ = opened.Close() }() // nothing was written
	status := Status{Version: version, Newest: version}
	if s, ok := opened.Store.(*redisstore.Store); ok {
		keys, err := s.CountAll(ctx)
		if err != nil {
			return Status{}, l.StoreError(err)
		}
		status.Keys = int64(keys)
	}
	return status, nil
}
