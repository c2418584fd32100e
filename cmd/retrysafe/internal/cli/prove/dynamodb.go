package prove

import (
	"context"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// dynamoClass returns what a table of DynamoDB promises, by one that is made for it.
func dynamoClass(ctx context.Context, url string) (class string, err error) {
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
	s, ok := opened.Store.(*dynamostore.Store)
	if !ok {
		return "", nil
	}
	d, err := s.Durability(ctx)
	return d.String(), err
}
