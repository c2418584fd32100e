package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// followFor is how long a store logs its writes at most, so that a move that was killed
// does not fill the server's memory.
const followFor = 24 * time.Hour

// errMissed says that the log of written keys is incomplete.
var errMissed = fmt.Errorf("redisstore: the store was followed for more than %v, and writes were missed; copy again", followFor)

// Follow implements [storemove.Source]. A script is atomic, so there are no writers to wait
// for: what a bucket has written before it is followed is there to be listed.
func (m mover) Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error) {
	var ends int64
	k, err := storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) {
		ends = now.Add(followFor).UnixMicro()
		return k.Follow(run, now)
	})
	if err == nil {
		_, err = m.gateAll(ctx, "follow", k.Seq, ends)
	}
	if err != nil {
		return source, fmt.Errorf("redisstore: follow: %w", err)
	}
	return k.Source, nil
}

// Unfollow implements [storemove.Source].
func (m mover) Unfollow(ctx context.Context, run retrysafe.Owner) error {
	if err := m.stay(ctx, run); err != nil {
		return fmt.Errorf("redisstore: unfollow: %w", err)
	}
	return nil
}

// stay ends a run, and opens the buckets that it follows or has closed.
func (m mover) stay(ctx context.Context, run retrysafe.Owner) error {
	k, err := storemove.Change(ctx, m, func(k *storemove.Kept, _ time.Time) (storemove.Kept, error) {
		if !k.IsBy(storemove.Followed, run) {
			return *k, storemove.ErrOvertaken
		}
		return k.Stay(k.Seq)
	})
	if err == nil {
		_, err = m.gateAll(ctx, "open", k.Seq)
	}
	return err
}

// Written implements [storemove.Source].
func (m mover) Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	k, _, err := storemove.Read(ctx, m)
	if err == nil && !k.IsBy(storemove.Followed, run) {
		err = storemove.ErrOvertaken
	}
	if err == nil {
		written, gone, err = m.takeLogged(ctx, k.Seq, limit)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("redisstore: read what was written: %w", err)
	}
	return written, gone, nil
}

// retireBatch is how many keys Retire takes from the log at a time.
const retireBatch = 500

// Retire implements [storemove.Source]. The note that says "moved" is written last, and only
// if it still says that this run has locked out the writers. If it is never written, the cut
// ends by itself.
func (m mover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	err := m.copyRest(ctx, run, to, rest)
	if err != nil {
		_ = m.stay(context.WithoutCancel(ctx), run) // if it fails, the cut ends by itself
		return fmt.Errorf("redisstore: retire: %w", err)
	}
	_, err = storemove.Change(context.WithoutCancel(ctx), m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) { return k.Retire(run, now) })
	if err != nil {
		return fmt.Errorf("redisstore: retire: %w", err)
	}
	return nil
}

// copyRest locks out all writers, and calls rest until the log is empty.
func (m mover) copyRest(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	lock := func() (storemove.Kept, error) {
		return storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) { return k.Cut(run, to, now) })
	}
	k, err := lock()
	if err != nil {
		return err
	}
	if _, err := m.gateAll(ctx, "cut", k.Seq); err != nil {
		return err
	}
	for more := true; more; {
		written, gone, err := m.takeLogged(ctx, k.Seq, retireBatch)
		if err != nil {
			return err
		}
		if err := rest(ctx, written, gone); err != nil {
			return err
		}
		if _, err := lock(); err != nil {
			return err
		}
		more = len(written)+len(gone) > 0
	}
	return nil
}

// Retired implements [storemove.Source].
func (m mover) Retired(ctx context.Context) (run retrysafe.Owner, err error) {
	k, _, err := storemove.Read(ctx, m)
	if err != nil || k.Part != storemove.Moved {
		return run, err
	}
	return k.Run, nil
}

// takeLogged takes at most limit entries from the logs of all buckets, and more if those
// have no key to return: it returns nothing only if the logs are empty. The records are
// read afterwards. If one is written later, its key is logged again.
func (m mover) takeLogged(ctx context.Context, seq int64, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	for len(written)+len(gone) == 0 {
		entries, err := m.take(ctx, seq, limit)
		if err != nil || len(entries) == 0 {
			return nil, nil, err
		}
		if written, gone, err = m.readLogged(ctx, seq, entries); err != nil {
			return nil, nil, err
		}
	}
	return written, gone, nil
}

// take takes at most limit entries from the logs: some from each bucket, and then more from
// those that have more.
func (m mover) take(ctx context.Context, seq int64, limit int) (entries []string, err error) {
	for left := m.allBuckets(); len(left) > 0 && len(entries) < limit; {
		asked := left[:min(len(left), limit-len(entries))]
		each := min((limit-len(entries))/len(asked), 1000)
		steps := make([]*step, len(asked))
		for n, b := range asked {
			steps[n] = indexStep(b, each)
			steps[n].script, steps[n].move = takeScript, ofRun(seq)
		}
		answers, err := m.do(ctx, steps)
		if err != nil {
			return nil, err
		}
		more := left[len(asked):]
		for n, a := range answers {
			list, ok := a.Value.v.([]any)
			if !ok {
				return nil, errReply(a.Value.v)
			}
			for _, v := range list {
				text, _ := v.(string)
				entries = append(entries, text)
			}
			if len(list) == each {
				more = append(more[:len(more):len(more)], asked[n])
			}
		}
		left = more
	}
	return entries, nil
}

// readLogged reads the records of logged keys. Those that are not there were deleted, if
// there is an entry with their head; otherwise that entry comes later, or came before.
func (m mover) readLogged(ctx context.Context, seq int64, entries []string) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	heads := make(map[id]string, len(entries))
	var ids []id
	for _, e := range entries {
		if e == "missed" {
			return nil, nil, errMissed
		}
		if len(e) < 1+idDigits || !id(e[1:1+idDigits]).valid() {
			return nil, nil, fmt.Errorf("redisstore: the log of the prefix %q has the entry %q, which is none of the store's", m.s.prefix, e)
		}
		i := id(e[1 : 1+idDigits])
		if _, again := heads[i]; !again {
			ids = append(ids, i)
		}
		if head := e[1+idDigits:]; head != "" || heads[i] == "" {
			heads[i] = head
		}
	}
	steps := make([]*step, len(ids))
	for n, i := range ids {
		steps[n] = m.s.stepOf(loadScript, i, nil, false)
		steps[n].move = ofRun(seq)
	}
	answers, err := m.do(ctx, steps)
	if err != nil {
		return nil, nil, err
	}
	for n, a := range answers {
		if text, ok := a.Value.v.(string); ok {
			r, _, err := decode(ids[n], text, a.Value.now)
			if err != nil {
				return nil, nil, err
			}
			written = append(written, r)
			continue
		}
		if head := heads[ids[n]]; head != "" {
			var r retrysafe.Record
			if err := decodeHead(&r, []byte(head)); err != nil {
				return nil, nil, err
			}
			gone = append(gone, r.Ref)
		}
	}
	return written, gone, nil
}
