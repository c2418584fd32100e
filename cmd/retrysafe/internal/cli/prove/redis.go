package prove

import (
	"context"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// redisClass returns what a Redis server promises, by a sandbox that is made for it.
func redisClass(ctx context.Context, url string) (class string, err error) {
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
	s, ok := opened.Store.(*redisstore.Store)
	if !ok {
		return "", nil
	}
	d, err := s.Durability(ctx)
	return d.String(), err
}
