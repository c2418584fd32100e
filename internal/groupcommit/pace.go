package groupcommit

import "time"

// pace is how long recent batches took, and what follows from that.
type pace struct {
	execution, commit time.Duration // moving averages: in the server, and of the waits beside it
	overlapping       bool
	distant           bool // the way alone is reason enough
	noted             int  // batches that were measured
	begun             int
}

const (
	// paceFirst is how many batches are measured before one decides, and paceEvery which of
	// the later ones are while batches do not overlap.
	paceFirst, paceEvery = 8, 16
	// paceShare is the share of a new measurement in the average.
	paceShare = 8
)

// watchNext reports whether the next batch is to be measured. Where batches begin when the
// one before has been executed, each is.
func (p *pace) watchNext() bool {
	p.begun++
	return p.overlapping && !p.distant || p.noted < paceFirst || p.begun%paceEvery == 0
}

// note adds a measurement and decides anew. The way to the server and back is no work of
// the server's: like a commit it may be under way for several batches.
func (p *pace) note(roundTrip, execution, commit time.Duration, overlap, distant func(execution, wait time.Duration, now bool) bool) {
	execution, commit = max(execution-roundTrip, 0), commit+roundTrip
	if p.noted++; p.noted <= paceFirst {
		// The plain average until then: the first batch finds nothing in the server's memory.
		p.execution += (execution - p.execution) / time.Duration(p.noted)
		p.commit += (commit - p.commit) / time.Duration(p.noted)
	} else {
		p.execution += (execution - p.execution) / paceShare
		p.commit += (commit - p.commit) / paceShare
	}
	if overlap == nil {
		p.overlapping = p.noted >= paceFirst && Overlap(p.execution, p.commit, p.overlapping)
	} else {
		p.overlapping = overlap(p.execution, p.commit, p.overlapping)
	}
	if distant == nil {
		distant = Overlap
	}
	p.distant = p.overlapping && distant(p.execution, roundTrip, p.distant)
}

// slowCommit is from what time on a commit, or the way to the server, is worth the smaller
// batches of overlapping.
const slowCommit = 500 * time.Microsecond

// Overlap reports whether batches should overlap: where the commit is slow, and takes one
// and a half times as long as the execution. Where it does not, waiting for the batch before
// makes larger batches, which are cheaper. Batches go on overlapping until the commit
// takes less time than the execution, or half as long as a slow one, so that chance does
// not decide anew with every batch.
func Overlap(execution, commit time.Duration, overlapping bool) bool {
	if overlapping {
		return commit > execution && commit > slowCommit/2
	}
	return 2*commit > 3*execution && commit > slowCommit
}
