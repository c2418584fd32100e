package gateway

import (
	"context"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A storePool shares open stores between instances, by URL: a reload keeps the store
// that is open, and records in memory survive it. It is safe for concurrent use.
type storePool struct {
	mu    sync.Mutex
	byURL map[string]*pooledStore
}

type pooledStore struct {
	*storeurl.Opened
	users int
}

// has reports whether the store at a location is open.
func (p *storePool) has(l *stores.Location) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byURL[l.URL] != nil
}

// open returns the store at a location, and a function that releases it. The last
// release closes the store. Opts, which may be nil, are for a store that is not open.
func (p *storePool) open(ctx context.Context, l *stores.Location, opts *storeurl.Options) (*storeurl.Opened, func() error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byURL[l.URL]
	if s == nil {
		ctx, cancel := context.WithTimeout(ctx, stores.Timeout)
		defer cancel()
		opened, err := storeurl.Open(ctx, l.URL, opts)
		if err != nil {
			return nil, nil, l.StoreError(err)
		}
		s = &pooledStore{Opened: opened}
		if p.byURL == nil {
			p.byURL = map[string]*pooledStore{}
		}
		p.byURL[l.URL] = s
	}
	s.users++
	return s.Opened, sync.OnceValue(func() error { return p.release(l, s) }), nil
}

func (p *storePool) release(l *stores.Location, s *pooledStore) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	delete(p.byURL, l.URL)
	if err := s.Close(); err != nil {
		return fmt.Errorf("close the store %s: %w", l, err)
	}
	return nil
}
