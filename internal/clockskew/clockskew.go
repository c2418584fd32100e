// Package clockskew says when a store's clock is not believed. A store's clock that was
// set forward by more than the retention makes every stored answer look expired at once:
// each retry would run again, and the reaper would delete what is needed to prevent it.
// An answer that is kept too long does no harm. So before an answer is given up, the clock
// of this machine is asked too.
package clockskew

import "time"

// MaxLead is how far the store's clock may be ahead of this machine's before it is not
// believed alone. It is more than two machines with NTP ever differ, and an answer that
// expires so much too early does no harm either.
const MaxLead = 5 * time.Minute

// Ahead returns how far the store's clock is ahead of this machine's, or zero if that is
// at most [MaxLead].
func Ahead(store, here time.Time) time.Duration {
	if d := store.Sub(here); d > MaxLead {
		return d
	}
	return 0
}
