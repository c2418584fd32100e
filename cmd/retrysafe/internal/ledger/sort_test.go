package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// sorted yields the rows of a source as Compare reports them if the other side has none: in order.
func sorted(ctx context.Context, from ledger.Source, o *ledger.Options) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		enough := errors.New("enough")
		_, err := ledger.Compare(ctx, from, ledger.Of(), ledger.Each(func(d ledger.Difference) error {
			if !yield(d.Ours, nil) {
				return enough
			}
			return nil
		}), o)
		if err != nil && !errors.Is(err, enough) {
			yield(ledger.Entry{}, err)
		}
	}
}

// tiny makes even short lists go to the disk, and be sorted there.
func tiny(dir string) *ledger.Options { return &ledger.Options{Dir: dir, Memory: 1} }

// shuffled is n rows in no order, with ids that come twice and times and fields of all kinds.
func shuffled(n int) []ledger.Entry {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]ledger.Entry, n)
	for i := range list {
		list[i] = ledger.Entry{ID: fmt.Sprintf("pay_%08d", r.IntN(n)), Line: i + 2}
		switch i % 3 {
		case 0:
			list[i].Fields = map[string]string{"amount": "1.00", "": "\x00", "note": ""}
		case 1:
			list[i].Time = time.Unix(r.Int64N(1e10)-5e9, r.Int64N(1e9)).UTC()
		}
	}
	return list
}

func TestSorted(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 1000, 20_000} {
		for _, memory := range []int{1, 0} {
			dir := t.TempDir()
			list := shuffled(n)
			got, err := collect(sorted(t.Context(), ledger.Of(list...), &ledger.Options{Dir: dir, Memory: memory}))
			if err != nil {
				t.Fatal(err)
			}
			slices.SortStableFunc(list, byID)
			if len(got) != n || n > 0 && !reflect.DeepEqual(got, list) {
				t.Errorf("%d rows in %d bytes of memory are not the same rows in order", n, memory)
			}
			nothingLeft(t, dir)
		}
	}
}

func TestSortedTakesRowsOfAnySize(t *testing.T) {
	t.Parallel()
	var list []ledger.Entry
	for _, id := range []string{"d", "b", "c", "a", "e"} {
		list = append(list, row(id, "note", strings.Repeat(id, 300_000)), row(id, "note", "short"))
	}
	dir := t.TempDir()
	got, err := collect(sorted(t.Context(), ledger.Of(list...), tiny(dir)))
	slices.SortStableFunc(list, byID)
	if err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("%d rows, %v", len(got), err)
	}
	nothingLeft(t, dir)
}

func TestSortedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	list := shuffled(20_000)
	for _, c := range []struct {
		rule string
		sort func(dir string) error
		want error
	}{
		{"when its source fails", func(dir string) error {
			_, err := collect(sorted(t.Context(), broken(lost, list...), tiny(dir)))
			return err
		}, lost},
		{"when nobody wants the rest", func(dir string) error {
			for _, err := range sorted(t.Context(), ledger.Of(list...), tiny(dir)) {
				if !openIn(t, dir) {
					return errors.New("nothing was on disk, so this shows nothing")
				}
				if files, err := os.ReadDir(dir); runtime.GOOS == "linux" && len(files) > 0 || err != nil {
					return fmt.Errorf("a kill would leave the payments in %v: %w", files, err)
				}
				return err
			}
			return nil
		}, nil},
		{"when the comparison fails", func(dir string) error {
			_, err := ledger.Compare(t.Context(), ledger.Of(list...), broken(lost), nil, tiny(dir))
			return err
		}, lost},
		{"when the disk has no room", func(dir string) error {
			_, err := collect(sorted(t.Context(), ledger.Of(list...), &ledger.Options{Dir: dir, Memory: 1, Disk: 300_000}))
			return err
		}, ledger.ErrTooLarge},
		{"when rows without an id have no room", func(dir string) error {
			nameless := slices.Clone(list[:5000]) // neither half of them is too large
			for i := range nameless {
				nameless[i].Unidentified = i >= len(nameless)/2
			}
			_, err := collect(sorted(t.Context(), ledger.Of(nameless...), &ledger.Options{Dir: dir, Disk: 120_000}))
			return err
		}, ledger.ErrTooLarge},
		{"when the context has ended before", func(dir string) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := collect(sorted(ctx, ledger.Of(list...), tiny(dir)))
			return err
		}, context.Canceled},
		{"when the context ends while it reads", func(dir string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := collect(sorted(ctx, func(yield func(ledger.Entry, error) bool) {
				for i, e := range list {
					if i == 15_000 {
						cancel()
					}
					if !yield(e, nil) {
						return
					}
				}
			}, tiny(dir)))
			return err
		}, context.Canceled},
		{"when the context ends while it merges", func(dir string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, err := range sorted(ctx, ledger.Of(list...), tiny(dir)) {
				if cancel(); err != nil {
					return err
				}
			}
			return nil
		}, context.Canceled},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := c.sort(dir); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			nothingLeft(t, dir)
		})
	}
}

func TestSortedNeedsItsDirectory(t *testing.T) {
	t.Parallel()
	_, err := collect(sorted(t.Context(), ledger.Of(shuffled(5000)...), tiny(filepath.Join(t.TempDir(), "missing"))))
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
	if openIn(t, dir) {
		t.Error("a file is open still")
	}
}

// openIn reports whether this process has a file of dir open, with or without a name. Where it cannot be known it says
// what the directory says.
func openIn(t *testing.T, dir string) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		files, err := os.ReadDir(dir)
		return err != nil || len(files) > 0
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(open, func(fd string) bool {
		to, err := os.Readlink(fd)
		return err == nil && strings.HasPrefix(to, dir+"/")
	})
}
