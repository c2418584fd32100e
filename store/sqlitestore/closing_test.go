package sqlitestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Steps may come while the store closes, such as an answer that an engine offers in
// the background. Each is taken or refused; nothing is half open.
func TestStepsMayComeWhileTheStoreCloses(t *testing.T) {
	t.Parallel()
	for range 20 {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
		must(t, err)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := range 20 {
					ref := retrysafe.Ref{Scope: "t", Key: string([]byte{'a' + byte(i), 'a' + byte(j)})}
					_, err := s.Create(context.Background(), retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
						Ref: ref, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1,
						Owner: retrysafe.Owner{1, byte(i), byte(j)}, Retain: time.Hour,
					}})
					if err != nil && !errors.Is(err, sqlitestore.ErrClosed) {
						t.Errorf("create %s: %v", ref.Key, err)
					}
				}
			})
		}
		must(t, s.Close())
		all.Wait()
		if _, err := s.Load(t.Context(), retrysafe.Ref{Scope: "t", Key: "aa"}); !errors.Is(err, sqlitestore.ErrClosed) {
			t.Errorf("load from a closed store: %v", err)
		}
	}
}
