package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// moveHarness is the data of one prefix, and what it says of a move.
func moveHarness(t *testing.T) movetest.Harness {
	t.Helper()
	url, opts := shared(t)
	return moveHarnessAt(t, url, opts)
}

func moveHarnessAt(t *testing.T, url string, opts *redisstore.Options) movetest.Harness {
	t.Helper()
	return movetest.Harness{
		Open: func(ctx context.Context, moving bool) (movetest.Store, error) {
			s, err := redisstore.Open(ctx, url, &redisstore.Options{Prefix: opts.Prefix, Moving: moving, Timeout: patience})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			return s, nil
		},
		CutEndsRun: true,
		Purge: func(t *testing.T, s movetest.Store, _ [2]retrysafe.Ref) {
			t.Helper()
			if n, err := s.Purge(t.Context(), 10); n != 2 || err != nil {
				t.Fatalf("Purge = %d, %v", n, err)
			}
		},
		ExpireLog: func(t *testing.T) {
			t.Helper()
			s := open(t, url, opts)
			for _, key := range s.MarkKeys() {
				c := s.Client(refOf(0))
				mark, err := c.Get(t.Context(), key).Result()
				must(t, err)
				f := strings.Fields(mark[48:])
				f[2] = "1000"
				must(t, c.Set(t.Context(), key, mark[:48]+strings.Join(f, " "), 0).Err())
			}
		},
	}
}

func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	movetest.FollowNotesEveryWrite(t, moveHarness(t))
}

func TestFollowEndsByItself(t *testing.T) {
	t.Parallel()
	movetest.FollowEndsByItself(t, moveHarness(t))
}

func TestFillIsOneRuns(t *testing.T) {
	t.Parallel()
	movetest.FillIsOneRuns(t, moveHarness(t))
}

func TestImportKeepsRecords(t *testing.T) {
	t.Parallel()
	movetest.ImportKeepsRecords(t, moveHarness(t))
}

func TestMovingOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	movetest.MovingOpensWhatIsClosed(t, moveHarness(t))
}

func TestRetireIsUndone(t *testing.T) {
	t.Parallel()
	movetest.RetireIsUndone(t, moveHarness(t))
}

func TestFillIsUndone(t *testing.T) {
	t.Parallel()
	movetest.FillIsUndone(t, moveHarness(t))
}

// A bucket that a run has closed after it was given up is opened by the first step that
// finds it closed. A late command of that run opens and closes nothing else.
func TestBucketsOfAnEndedRunAreOpened(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	ctx, first, second := t.Context(), retrysafe.Owner{1}, retrysafe.Owner{2}
	must2 := func(_ any, err error) { t.Helper(); must(t, err) }
	must2(s.Create(ctx, newWrite("key")))
	must2(s.Mover().Follow(ctx, first))
	must(t, s.Mover().Unfollow(ctx, first))
	must(t, s.Gate(ctx, "follow", 1, 1<<53)) // late
	must(t, s.Gate(ctx, "cut", 1))
	must2(s.Load(ctx, newWrite("key").Ref))
	must2(s.Mover().Follow(ctx, second))
	if err := s.Gate(ctx, "cut", 1); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("the cut of a run that was replaced = %v", err)
	}
	must(t, s.Gate(ctx, "open", 1))
	must2(s.Create(ctx, newWrite("logged")))
	written, _, err := s.Mover().Written(ctx, second, 10)
	if err != nil || len(written) != 1 || written[0].Key != "logged" {
		t.Errorf("a late command of the run before has ended the log: %v, %v", written, err)
	}
}

// A command of a run that was replaced may arrive late, after the note of the move has let
// it pass: the mark of each bucket refuses it.
func TestLateCommandsOfAReplacedRunAreRefused(t *testing.T) {
	t.Parallel()
	ctx, run, id := t.Context(), retrysafe.Owner{1}, strings.Repeat("0", 32)
	url, opts := shared(t)
	source := open(t, url, opts)
	must2 := func(_ any, err error) { t.Helper(); must(t, err) }
	must2(source.Mover().Follow(ctx, run))
	must2(source.Create(ctx, newWrite("key")))
	if err := source.Gate(ctx, "fill", 9, id, id); !errors.Is(err, storemove.ErrLeaving) {
		t.Errorf("fill of a bucket that is followed = %v", err)
	}
	must(t, source.Gate(ctx, "follow", 9, 1<<53))
	if _, _, err := source.Mover().Written(ctx, run, 10); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Written of a run that was replaced = %v", err)
	}

	url, opts = shared(t)
	destination := open(t, url, opts)
	must(t, destination.Mover().Fill(ctx, run, retrysafe.Owner{9}, "elsewhere"))
	if err := destination.Gate(ctx, "follow", 9, 1<<53); !errors.Is(err, storemove.ErrFilling) {
		t.Errorf("follow of a bucket that is filled = %v", err)
	}
	if err := destination.Gate(ctx, "cut", 1); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("cut of a bucket that is filled = %v", err)
	}
	must(t, destination.Gate(ctx, "fill", 9, id, id))
	if err := destination.Mover().Import(ctx, run, []retrysafe.Record{newWrite("key").Record}, nil); err == nil {
		t.Error("a run that was replaced has imported a record")
	}
}

// A process whose program does not know of moves is refused while the store is followed:
// the log would miss its writes. What it compares is the epoch at the beginning of a mark.
func TestFollowedStoreRefusesProgramsThatKnowNoMoves(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	epochs := func() (all []string) {
		for _, key := range s.MarkKeys() {
			mark, err := s.Client(refOf(0)).Get(t.Context(), key).Result()
			must(t, err)
			all = append(all, mark[:16])
		}
		return all
	}
	before := epochs()
	_, err := s.Mover().Follow(t.Context(), retrysafe.Owner{1})
	must(t, err)
	for b, epoch := range epochs() {
		if epoch == before[b] {
			t.Errorf("bucket %d has its epoch where an old program looks for it", b)
		}
	}
	must(t, s.Mover().Unfollow(t.Context(), retrysafe.Owner{1}))
	if after := epochs(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the epochs are %v, and were %v", after, before)
	}
}

// A mover that is killed in its cut leaves a store that serves again when the cut has
// ended by itself, and the mover cannot retire it any more.
func TestKilledCutEndsByItself(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s, other := open(t, url, opts), open(t, url, opts)
	ctx, run := t.Context(), retrysafe.Owner{1}
	_, err := s.Mover().Follow(ctx, run)
	must(t, err)
	err = s.Mover().Retire(ctx, run, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error {
		if _, err := other.Create(ctx, newWrite("k")); !errors.Is(err, storemove.ErrCut) {
			t.Errorf("Create in the cut = %v", err)
		}
		c, key := s.Client(refOf(0)), strings.TrimSuffix(s.MarkKeys()[0], "mark")+"move"
		note, err := c.Get(ctx, key).Result()
		must(t, err)
		past := regexp.MustCompile(`"cut_ends":\d+`).ReplaceAllString(note, `"cut_ends":1`)
		if past == note {
			t.Fatalf("the note has no end of the cut: %s", note)
		}
		must(t, c.Set(ctx, key, past, 0).Err())
		_, err = other.Create(ctx, newWrite("k"))
		must(t, err)
		return nil
	})
	if !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Retire = %v", err)
	}
	_, err = s.Create(ctx, newWrite("another"))
	must(t, err)
}
