package sim

import "github.com/retrysafe/retrysafe"

// An event is something that schedules differ by, and that is counted.
type event uint8

// What can happen, beside what engines tell.
const (
	nodeCrashed event = iota
	nodeFroze
	actorSlowed
	clockJumped
	serverCrashed
	reservationForgotten
	requestLost
	replyLost
	appliedLate
	appliedTwice
	commitHung
	txBroken
	clientHungUp
	clientCutOff
	attemptBegun
	attemptFailed
	attemptPanicked
	attemptHung
	takenOver
	orphanAdopted
	zombieRefused
	generationBegun
	ownerCameBack
	effectMade
	effectRepeated
	effectRefused
	effectLate
	tombstonePlaced
	answerStored
	answerShown
	answerReplayed
	refusedInFlight
	refusedAccepted
	refusedUnknown
	refusedMismatch
	refusedGone
	refusedUnavailable
	refusedUnreadable
	unsettled
	handedOver
	messageSent
	messageDead
	takenUp
	sweepDone
	reconcileDone
	reapDone
	outboxDone
	stepDragged
	passCancelled
	answerAwaited
	lapseAwaited
	firstEngineEvent // and one for each kind of retrysafe.Event
)

const (
	lastEngineEvent = event(retrysafe.EventContradicted)
	events          = firstEngineEvent + lastEngineEvent + 1
)

var eventNames = [firstEngineEvent]string{
	"nodes crashed", "nodes frozen", "actors slowed", "clocks jumped",
	"servers crashed", "reservations forgotten",
	"requests lost", "replies lost", "steps applied late", "steps applied twice", "commits that hung", "transactions broken",
	"clients hung up", "clients cut off",
	"attempts", "attempts failed", "attempts panicked", "attempts hung",
	"take-overs", "orphans adopted", "zombies refused", "new generations", "owners that came back",
	"effects", "effects repeated under their key", "effects refused", "effects that came late", "tombstones placed",
	"answers stored", "answers shown", "answers replayed",
	"told in flight", "told accepted", "told unknown", "told mismatch", "told gone", "told unavailable", "told unreadable", "told unsettled",
	"keys handed to messages", "messages sent", "dead letters", "works taken up",
	"sweeps", "reconciliations", "reaps", "outbox rounds",
	"slow steps of workers", "outbox rounds cancelled", "answers waited for", "lapses waited for",
}

// name is what an event is called in figures.
func (e event) name() string {
	if e < firstEngineEvent {
		return eventNames[e]
	}
	return "engine: " + retrysafe.EventKind(e-firstEngineEvent).String()
}
