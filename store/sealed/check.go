package sealed

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
)

// Check reads a few records of below and returns an error that wraps
// [retrysafe.ErrUnreadable] if there are any and none was sealed with these secrets.
// Call it once at startup: with another index secret no key would be found, and each
// operation would run again.
func Check(ctx context.Context, below retrysafe.Store, keys *Keyring) error {
	if below == nil || keys == nil {
		return errMissing
	}
	list, err := below.List(ctx, retrysafe.Query{Limit: 16})
	if err != nil {
		return fmt.Errorf("check secrets: %w", err)
	}
	w := keys.work()
	defer w.done()
	looked := 0
	for i := range list {
		if deployment.Is(list[i].Ref) {
			continue // it is never sealed
		}
		if _, _, err = w.openNames(&list[i]); err == nil {
			return nil
		}
		looked++
	}
	if err != nil {
		return fmt.Errorf("check secrets: none of the first %d records opens: %w", looked, err)
	}
	return nil
}
