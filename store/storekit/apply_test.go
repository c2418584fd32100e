package storekit_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A step of an attempt keeps what the attempt began with, and a claim replaces it. The name
// of the record and the time of its first attempt stay, unless the first attempt is a new one.
func TestApplyKeepsWhatTheAttemptBeganWith(t *testing.T) {
	t.Parallel()
	before, now := time.Unix(1000, 0), time.Unix(2000, 0)
	of := func(owner byte, text string, attempt int) retrysafe.Record {
		return retrysafe.Record{
			Ref: retrysafe.Ref{Scope: text, Key: text}, Owner: retrysafe.Owner{owner}, Operation: text, Fingerprint: retrysafe.Fingerprint{Alg: owner},
			KeyText: []byte(text), Request: []byte(text), Attempt: attempt, Checkpoint: retrysafe.Checkpoint{Phase: text, Data: []byte(text)},
			State: retrysafe.StateInProgress, Reason: text, ProviderRef: text, CreatedAt: before,
		}
	}
	type part struct{ began, checkpoint, rest string }
	for name, c := range map[string]struct {
		write   retrysafe.Write
		want    part
		attempt int
		created time.Time
	}{
		"a step":            {retrysafe.Write{Record: of(2, "new", 5)}, part{"old", "old", "new"}, 3, before},
		"a checkpoint":      {retrysafe.Write{Record: of(2, "new", 5), SetCheckpoint: true}, part{"old", "new", "new"}, 3, before},
		"a claim":           {retrysafe.Write{Record: of(2, "new", 4), Overwrite: true}, part{"new", "new", "new"}, 4, before},
		"a claim from anew": {retrysafe.Write{Record: of(2, "new", 1), Overwrite: true}, part{"new", "new", "new"}, 1, now},
	} {
		stored := of(1, "old", 3)
		c.write.CreatedAt = time.Unix(9, 0)
		got := storekit.Apply(&stored, &c.write, now)
		owner := map[string]byte{"old": 1, "new": 2}[c.want.began]
		if got.Operation != c.want.began || string(got.KeyText) != c.want.began || string(got.Request) != c.want.began || got.Owner[0] != owner || got.Fingerprint.Alg != owner || got.Attempt != c.attempt {
			t.Errorf("%s: the attempt is %+v, want the %s one", name, got, c.want.began)
		}
		if got.Checkpoint.Phase != c.want.checkpoint || string(got.Checkpoint.Data) != c.want.checkpoint || got.Reason != c.want.rest || got.ProviderRef != c.want.rest {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Ref != stored.Ref || !got.CreatedAt.Equal(c.created) {
			t.Errorf("%s: it is %v of %v", name, got.Ref, got.CreatedAt)
		}
	}
}
