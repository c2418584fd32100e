package tiered

import "math"

// A flight is the calls to one key that are below at the same time. Nobody
// knows in which order they are served there, so what comes back to one of them
// is judged by what has come back to the others:
//
//   - nothing is cached while a Swap is on its way, for it may have been applied;
//   - nothing is cached that is older than what came back before it;
//   - nothing is cached that was asked for before a call found no record or
//     failed, or before Forget.
//
// What has come back before a call went below needs no judgement: the store
// below shows that call the same record or a newer one. So a hit is never older
// than anything that was returned before it.
type flight struct {
	calls, swaps uint32
	epoch        uint32 // moves when what was asked for so far is void
	told         int64  // the highest revision that has come back
}

// A ticket says when a call went below.
type ticket struct {
	epoch uint32
	swap  bool
}

// nothing is the revision of no record: there is none, or nobody can say. It is
// newer than whatever is cached.
const nothing = math.MaxInt64

// depart counts a call in. The caller holds mu.
func (at *place) depart(swap bool) ticket {
	f := at.sh.flights[at.hash]
	f.calls++
	if swap {
		f.swaps++
	}
	at.sh.flights[at.hash] = f
	return ticket{at.sh.epoch + f.epoch, swap}
}

// arrive counts a call out, and reports whether what it brings may be cached.
// The caller holds mu.
func (at *place) arrive(t ticket, revision int64) bool {
	f := at.sh.flights[at.hash]
	f.calls--
	if t.swap {
		f.swaps--
	}
	latest := f.swaps == 0 && revision >= f.told && t.epoch == at.sh.epoch+f.epoch
	if revision == nothing {
		f.epoch++
	} else {
		f.told = max(f.told, revision)
	}
	if f.calls == 0 {
		delete(at.sh.flights, at.hash)
	} else {
		at.sh.flights[at.hash] = f
	}
	return latest
}
