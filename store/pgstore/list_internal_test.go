package pgstore

import (
	"math"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A new watermark is noted with its clock. When all slots were looked at, and when the clock
// was set back, leases from a minute ahead of it on are shortened; in the second case the
// watermark is dropped as well.
func TestWatermarkGoesByTheClock(t *testing.T) {
	t.Parallel()
	moved, before := time.Unix(5000, 0), time.Unix(1000, 0)
	for what, c := range map[string]struct {
		clock                   int32
		rewinds                 bool
		back                    bool
		watermark, ahead        int32
		rewound                 time.Time
		shortensBefore, shorten bool
	}{
		"onwards":                  {clock: 700, watermark: 690, rewound: before},
		"at the same second":       {clock: 600, watermark: 690, rewound: before},
		"onwards, still shortens":  {clock: 700, watermark: 690, rewound: before, shortensBefore: true, shorten: true},
		"all slots":                {clock: 700, rewinds: true, watermark: 690, ahead: 760, rewound: moved, shorten: true},
		"the clock was set back":   {clock: 599, back: true, watermark: noWatermark, ahead: 659, rewound: moved, shorten: true},
		"set back, and from below": {clock: 599, rewinds: true, back: true, watermark: noWatermark, ahead: 659, rewound: moved, shorten: true},
	} {
		b := &background{clock: 600, watermark: 500, moved: moved, rewound: before, shortens: c.shortensBefore}
		back := b.advanced(690, c.clock, c.rewinds)
		if back != c.back || b.clock != c.clock || b.watermark != c.watermark || b.ahead != c.ahead || b.shortens != c.shorten || !b.rewound.Equal(c.rewound) {
			t.Errorf("%s: set back %t, clock %d, watermark %d, ahead %d, shortens %t, rewound %v", what, back, b.clock, b.watermark, b.ahead, b.shortens, b.rewound)
		}
	}
}

// The bucket of a row, what a swap replaces of it, and how late its slot may be.
func TestFilingOfWrites(t *testing.T) {
	t.Parallel()
	write := func(state retrysafe.State, retain, term time.Duration) retrysafe.Write {
		return retrysafe.Write{Record: retrysafe.Record{State: state, Retain: retain}, Term: term}
	}
	const settled = slotSlack - slotEpoch
	for _, c := range []struct {
		w      retrysafe.Write
		bucket int32
		late   int64
	}{
		{write(retrysafe.StateAccepted, time.Hour, time.Minute), bucketAccepted, settled},
		{write(retrysafe.StateUnknown, time.Hour, time.Minute), bucketUnknown, settled},
		{write(retrysafe.StateInProgress, time.Hour, 90*time.Second+1), 3600, 90 - slotEpoch},
		{write(retrysafe.StateInProgress, -time.Hour, 0), 0, -slotEpoch},
		{write(retrysafe.StateInProgress, 1999*time.Millisecond, time.Minute), 1, 60 - slotEpoch},
		{write(retrysafe.StateCompleted, time.Hour, time.Minute), 60, settled},
		{write(retrysafe.StateRetryable, time.Hour, time.Minute), 60, settled},
		{write(retrysafe.StateExpired, time.Hour, -time.Minute), 0, settled},
		{write(retrysafe.StateCompleted, 0, math.MaxInt64), longestRetention, settled},
		{write(retrysafe.StateCompleted, 0, (longestRetention-1)*time.Second), longestRetention - 1, settled},
	} {
		if bucket, late := bucketOf(&c.w), lateOf(&c.w); bucket != c.bucket || late != c.late {
			t.Errorf("%v, kept %v, due after %v: bucket %d, want %d; late %d, want %d", c.w.State, c.w.Retain, c.w.Term, bucket, c.bucket, late, c.late)
		}
	}
	for _, c := range []struct {
		overwrite, checkpoint bool
		attempt               int
		want                  int16
	}{
		{false, false, 1, 0}, {false, true, 1, flagCheckpoint}, {true, false, 1, flagOverwrite | flagRenew}, {true, true, 2, flagOverwrite},
	} {
		w := retrysafe.Write{Overwrite: c.overwrite, SetCheckpoint: c.checkpoint, Record: retrysafe.Record{Attempt: c.attempt}}
		if got := flagsOf(&w); got != c.want {
			t.Errorf("%+v: flags %d", c, got)
		}
	}
}

// A write is large by its request, its checkpoint or its answer.
func TestLargeWrites(t *testing.T) {
	t.Parallel()
	much := make([]byte, 1<<20)
	for what, w := range map[string]retrysafe.Record{
		"request":    {Request: much},
		"checkpoint": {Checkpoint: retrysafe.Checkpoint{Data: much}},
		"answer":     {Result: &retrysafe.Result{Body: much}},
	} {
		if !isLarge(&retrysafe.Write{Record: w}) {
			t.Errorf("a large %s is not", what)
		}
	}
	if isLarge(&retrysafe.Write{Record: retrysafe.Record{Request: much[:10], Result: &retrysafe.Result{Body: much[:10]}}}) {
		t.Error("a small write is large")
	}
}
