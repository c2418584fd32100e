package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// sharedStores are the stores of configurations at work, by their URLs: a reload
// goes on with the store that is open, and what is in memory stays there.
type sharedStores struct {
	mu    sync.Mutex
	byURL map[string]*sharedStore
}

type sharedStore struct {
	*storeurl.Opened
	users int
}

// open returns the store at an address and what gives it back.
func (s *sharedStores) open(ctx context.Context, a *address) (retrysafe.Store, func() error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byURL[a.url]
	if one == nil {
		ctx, cancel := context.WithTimeout(ctx, answers)
		defer cancel()
		opened, err := storeurl.Open(ctx, a.url, nil)
		if err != nil {
			return nil, nil, a.trouble(err)
		}
		one = &sharedStore{Opened: opened}
		if s.byURL == nil {
			s.byURL = map[string]*sharedStore{}
		}
		s.byURL[a.url] = one
	}
	one.users++
	return one.Store, sync.OnceValue(func() error { return s.giveBack(a, one) }), nil
}

func (s *sharedStores) giveBack(a *address, one *sharedStore) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.users--; one.users > 0 {
		return nil
	}
	delete(s.byURL, a.url)
	if err := one.Close(); err != nil {
		return fmt.Errorf("close the store %s: %w", a, err)
	}
	return nil
}
