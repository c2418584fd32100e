package tiered

import "math"

// A flight is the set of concurrent calls to the store below for one key. The order in
// which the store serves them is not known, so the reply to one of them is checked
// against the replies to the others:
//
//   - nothing is cached while a Swap is under way, for it may have been applied;
//   - nothing is cached that is older than an earlier reply;
//   - nothing is cached that was asked for before a call found no record or
//     failed, or before Forget.
//
// Replies from before a call was sent need no check: the store below returns the same
// record or a newer one to that call. So a cache hit is never older than anything that
// was returned before it.
type flight struct {
	calls, swaps uint32
	epoch        uint32 // changes when the replies to all calls so far must not be cached
	latest       int64  // the highest revision in a reply
}

// A ticket records the state of the flight when a call was sent below.
type ticket struct {
	epoch uint32
	swap  bool
}

// nothing is the revision of a reply without a record: there is none, or the call
// failed. It is newer than every cached record.
const nothing = math.MaxInt64

// callSent registers a call. The caller holds mu.
func (at *place) callSent(swap bool) ticket {
	f := at.sh.flights[at.hash]
	f.calls++
	if swap {
		f.swaps++
	}
	at.sh.flights[at.hash] = f
	return ticket{at.sh.epoch + f.epoch, swap}
}

// callReturned unregisters a call, and reports whether its record may be cached. The
// caller holds mu.
func (at *place) callReturned(t ticket, revision int64) bool {
	f := at.sh.flights[at.hash]
	f.calls--
	if t.swap {
		f.swaps--
	}
	latest := f.swaps == 0 && revision >= f.latest && t.epoch == at.sh.epoch+f.epoch
	if revision == nothing {
		f.epoch++
	} else {
		f.latest = max(f.latest, revision)
	}
	if f.calls == 0 {
		delete(at.sh.flights, at.hash)
	} else {
		at.sh.flights[at.hash] = f
	}
	return latest
}
