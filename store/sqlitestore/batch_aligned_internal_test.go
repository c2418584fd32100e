package sqlitestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Each request of a batch gets the answer to its own key, whichever of them is refused,
// and also if two requests are for one key.
func TestAnswersOfABatchStayAligned(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	create := func(key string) *queued {
		w := retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "tenant", Key: key}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1,
		}}
		_, _ = rand.Read(w.Owner[:]) // it never fails
		return &queued{request: request{create: true, w: w}, row: row{id: id(idOf(w.Ref))}}
	}
	const members = 5
	for place := range members {
		known := fmt.Sprintf("known %d", place)
		first := s.sendImmediate(t.Context(), []*queued{create(known)})
		if first[0].Err != nil {
			t.Fatal(first[0].Err)
		}
		owner := first[0].Value.Owner
		for _, send := range []struct {
			name string
			send func([]*queued) []answer
		}{
			{"deferred", func(all []*queued) []answer { return s.sendDeferred(t.Context(), all) }},
			{"immediate", func(all []*queued) []answer { return s.sendImmediate(t.Context(), all) }},
		} {
			requests := make([]*queued, members+1)
			for i := range requests {
				requests[i] = create(fmt.Sprintf("%s %d of %d", send.name, i, place))
			}
			requests[place] = create(known)
			twin := (place + 1) % members
			requests[members] = create(requests[twin].w.Key) // of two requests for one key the first is applied
			for i, a := range send.send(requests) {
				want, wantErr := requests[i].w.Owner, error(nil)
				switch i {
				case place:
					want, wantErr = owner, retrysafe.ErrExists
				case members:
					want, wantErr = requests[twin].w.Owner, retrysafe.ErrExists
				}
				if !errors.Is(a.Err, wantErr) || a.Value == nil || a.Value.Ref != requests[i].w.Ref || a.Value.Owner != want {
					t.Errorf("%s, place %d: request %d for %q gets %+v, %v", send.name, place, i, requests[i].w.Key, a.Value, a.Err)
				}
			}
		}
	}
}
