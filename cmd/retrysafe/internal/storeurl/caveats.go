package storeurl

import (
	"context"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/dynamostore"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// Caveats says how an open store can lose an acknowledged answer, or hide it from a retry,
// where the store itself can tell. A store that does not answer has other errors.
func Caveats(ctx context.Context, s retrysafe.Store) []string {
	switch s := s.(type) {
	case *pgstore.Store:
		d, err := s.Durability(ctx)
		return caveats(d.Class, d.Caveats, err)
	case *mysqlstore.Store:
		d, err := s.Durability(ctx)
		return caveats(d.Class, d.Caveats, err)
	case *redisstore.Store:
		d, err := s.Durability(ctx)
		return caveats(d.Class, append([]string{"best effort: a failover or a restart of Redis can lose acknowledged keys, whose operations can then run again"}, d.Caveats...), err)
	case *dynamostore.Store:
		d, err := s.Durability(ctx)
		return caveats(d.Class, d.Caveats, err)
	}
	return nil
}

func caveats(class string, of []string, err error) (all []string) {
	if err != nil {
		return nil
	}
	for _, c := range of {
		all = append(all, "store: class "+class+": "+c)
	}
	return all
}
