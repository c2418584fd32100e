package storeurl

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/dynamostore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/redisstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Classes of stores that have no settings to ask for.
const (
	SQLiteClass = "class A on this machine: each commit is flushed to the disk"
	MemoryClass = "class D: gone with the process"
)

// Class returns the guarantee class of an open store, and why it has that one.
func Class(ctx context.Context, s retrysafe.Store) (string, error) {
	switch s := s.(type) {
	case *pgstore.Store:
		return classOf(s.Durability(ctx))
	case *mysqlstore.Store:
		return classOf(s.Durability(ctx))
	case *redisstore.Store:
		return classOf(s.Durability(ctx))
	case *dynamostore.Store:
		return classOf(s.Durability(ctx))
	case *sqlitestore.Store:
		return SQLiteClass, nil
	case *memstore.Store:
		return MemoryClass, nil
	default:
		return "", nil
	}
}

func classOf(d fmt.Stringer, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return d.String(), nil
}
