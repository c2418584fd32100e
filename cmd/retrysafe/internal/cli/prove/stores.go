package prove

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// stores returns the stores that the checks run on: the user's, or temporary ones. Skips
// has the kinds that are not available here, and why.
func (r *runner) stores(ctx context.Context, chosen []prove.Check) (stores []string, skips map[string]string, err error) {
	if r.store != "" {
		return []string{r.store}, nil, nil
	}
	if !slices.ContainsFunc(chosen, func(c prove.Check) bool { return c.Needs.Has(prove.Store) }) {
		return nil, nil, nil
	}
	stores = []string{storeurl.SQLite + ":" + filepath.Join(r.dir, "own.db")}
	url, err := startPostgres(ctx)
	switch {
	case err == nil:
		return append(stores, url), nil, nil
	case isNotInstalled(err):
		return stores, map[string]string{storeurl.Postgres: exit.Plain(err)}, nil
	default:
		return nil, nil, exit.Errorf(exit.Store, "no PostgreSQL server could be started: %v", err)
	}
}

// storeFacts returns what a store promises.
func storeFacts(ctx context.Context, url string) (prove.StoreFacts, error) {
	at, err := storeurl.Parse(url)
	if err != nil {
		return prove.StoreFacts{}, exit.Usagef("%v", err)
	}
	facts := prove.StoreFacts{URL: storeurl.Redact(url), Kind: at.Kind}
	switch at.Kind {
	case storeurl.SQLite:
		facts.Class = storeurl.SQLiteClass
		_, err = os.Stat(filepath.Dir(at.Path))
	case storeurl.Memory:
		facts.Class = storeurl.MemoryClass
	default:
		facts.Class, err = durabilityClass(ctx, url)
	}
	if err != nil {
		return facts, exit.Errorf(exit.Store, "%v", err)
	}
	return facts, nil
}

// durabilityClass returns what a server promises about commits, asked in a sandbox of its own.
func durabilityClass(ctx context.Context, url string) (string, error) {
	box, err := sandbox.New(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = box.Close(ctx) }()
	opened, err := sandbox.Open(ctx, box.URL)
	if err != nil {
		return "", err
	}
	defer func() { _ = opened.Close() }()
	return storeurl.Class(ctx, opened.Store)
}
