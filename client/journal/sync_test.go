package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// What Begin, End and Release have written is synced when they return.
func TestStepsAreSyncedBeforeTheyReturn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, nil)
	var synced int64
	j.OnSync(func(f *os.File) error {
		info, err := f.Stat()
		must(t, err)
		synced = info.Size()
		return f.Sync()
	})
	durable := func(step string) {
		t.Helper()
		info, err := os.Stat(path)
		must(t, err)
		if synced != info.Size() {
			t.Errorf("after %s %d of %d bytes are synced", step, synced, info.Size())
		}
	}
	op := operation("order-1")
	_, _, err := j.Begin(t.Context(), op)
	must(t, err)
	durable("Begin")
	op.Answer, op.Ended = &client.Answer{Status: 201}, time.Now()
	must(t, j.End(t.Context(), op))
	durable("End")
	other := operation("order-2")
	_, _, err = j.Begin(t.Context(), other)
	must(t, err)
	_, err = j.Release(t.Context(), other)
	must(t, err)
	durable("Release")
}

// After a sync that failed it is not known what is on the disk: nothing more is stored until
// the journal was opened again.
func TestASyncThatFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path, nil)
	broken := errors.New("input/output error")
	j.OnSync(func(*os.File) error { return broken })
	if _, _, err := j.Begin(t.Context(), operation("order-1")); !errors.Is(err, broken) {
		t.Errorf("Begin: %v", err)
	}
	j.OnSync((*os.File).Sync)
	if _, _, err := j.Begin(t.Context(), operation("order-2")); !errors.Is(err, broken) || !strings.Contains(err.Error(), "open the journal again") {
		t.Errorf("Begin after a sync that failed: %v", err)
	}
	must(t, j.Close())
	if _, found, err := open(t, path, nil).Begin(t.Context(), operation("order-2")); err != nil || found {
		t.Errorf("after another start: %t, %v", found, err)
	}
}
