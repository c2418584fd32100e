package pages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// A machine is the state machine as a drawing, with the path that one record took.
type machine struct {
	Boxes []box
	Edges []edge
	Steps []string // the path in words
}

// A box is a state. Class is "now", "past" or "never".
type box struct {
	X, Y, W, H, TextX, TextY int
	Text, State, Class       string
}

// An edge is a transition. Class is "taken" or "open".
type edge struct{ Path, Class string }

const newKey = retrysafe.State(0) // the place before the first state

const (
	boxWidth  = 112
	boxHeight = 38
)

// places are where the states stand: the middle of each box.
var places = map[retrysafe.State][2]int{
	newKey:                    {58, 110},
	retrysafe.StateAccepted:   {200, 34},
	retrysafe.StateInProgress: {260, 110},
	retrysafe.StateRetryable:  {200, 186},
	retrysafe.StateCompleted:  {470, 34},
	retrysafe.StateUnknown:    {470, 186},
	retrysafe.StateExpired:    {642, 34},
}

// transitions are the edges of the drawing, with the curve of each.
var transitions = []struct {
	from, to retrysafe.State
	path     string
}{
	{newKey, retrysafe.StateInProgress, "M114 110 H202"},
	{newKey, retrysafe.StateAccepted, "M76 91 Q92 34 142 34"},
	{retrysafe.StateAccepted, retrysafe.StateInProgress, "M222 53 L241 89"},
	{retrysafe.StateAccepted, retrysafe.StateCompleted, "M256 30 H412"},
	{retrysafe.StateAccepted, retrysafe.StateUnknown, "M256 44 C340 60 380 120 418 166"},
	{retrysafe.StateInProgress, retrysafe.StateCompleted, "M316 102 Q372 84 424 55"},
	{retrysafe.StateInProgress, retrysafe.StateRetryable, "M241 129 L222 165"},
	{retrysafe.StateRetryable, retrysafe.StateInProgress, "M238 167 L259 131"},
	{retrysafe.StateInProgress, retrysafe.StateUnknown, "M316 118 Q372 136 424 165"},
	{retrysafe.StateUnknown, retrysafe.StateCompleted, "M470 167 V55"},
	{retrysafe.StateUnknown, retrysafe.StateRetryable, "M414 190 H258"},
	{retrysafe.StateCompleted, retrysafe.StateUnknown, "M486 53 V165"},
	{retrysafe.StateCompleted, retrysafe.StateRetryable, "M424 53 C380 110 330 170 258 180"},
	{retrysafe.StateRetryable, retrysafe.StateUnknown, "M256 198 H412"},
	{retrysafe.StateCompleted, retrysafe.StateExpired, "M526 34 H584"},
}

// hidden are transitions that only an operator makes; the drawing shows one when it was
// taken.
var hidden = map[[2]retrysafe.State]bool{
	{retrysafe.StateCompleted, retrysafe.StateUnknown}:   true,
	{retrysafe.StateCompleted, retrysafe.StateRetryable}: true,
	{retrysafe.StateRetryable, retrysafe.StateUnknown}:   true,
}

// newMachine returns the drawing for a record.
func newMachine(r *retrysafe.Record) machine {
	path := pathOf(r)
	var m machine
	taken := map[[2]retrysafe.State]bool{}
	for i := 1; i < len(path); i++ {
		taken[[2]retrysafe.State{path[i-1], path[i]}] = true
	}
	for _, t := range transitions {
		pair := [2]retrysafe.State{t.from, t.to}
		e := edge{t.path, "open"}
		if taken[pair] {
			e.Class = "taken"
		}
		if e.Class == "taken" || !hidden[pair] {
			m.Edges = append(m.Edges, e)
		}
	}
	slices.SortStableFunc(m.Edges, func(a, b edge) int { return strings.Compare(a.Class, b.Class) }) // what was taken is drawn last
	for s := newKey; s <= retrysafe.StateExpired; s++ {
		at := places[s]
		b := box{at[0] - boxWidth/2, at[1] - boxHeight/2, boxWidth, boxHeight, at[0], at[1] + 5, stateName(s), s.String(), "never"}
		if slices.Contains(path, s) {
			b.Class = "past"
		}
		if s == r.State && s != newKey {
			b.Class = "now"
		}
		m.Boxes = append(m.Boxes, b)
	}
	for i, s := range path {
		text := stateName(s)
		if i == len(path)-1 {
			text = stateText(r) + fmt.Sprintf(" (attempt %d)", r.Attempt)
		}
		m.Steps = append(m.Steps, text)
	}
	return m
}

func stateName(s retrysafe.State) string {
	if s == newKey {
		return "new key"
	}
	return strings.ReplaceAll(s.String(), "_", " ")
}

// pathOf returns the states that a record went through, as far as it knows them. Attempts
// between two notes leave no trace of their own.
func pathOf(r *retrysafe.Record) []retrysafe.State {
	path := []retrysafe.State{newKey}
	add := func(s retrysafe.State) {
		if s.Valid() && path[len(path)-1] != s {
			path = append(path, s)
		}
	}
	if !r.Readable() {
		return path
	}
	if len(r.Request) > 0 {
		add(retrysafe.StateAccepted)
	}
	if r.Attempt > 0 && r.State != retrysafe.StateAccepted {
		add(retrysafe.StateInProgress)
	}
	for i := range r.Inquiry.Notes {
		n := &r.Inquiry.Notes[i]
		if n.By == traceAuthor {
			continue
		}
		s := n.State
		if last := path[len(path)-1]; last == retrysafe.StateInProgress || last == retrysafe.StateAccepted {
			add(before(n))
		}
		if path[len(path)-1] == retrysafe.StateRetryable && s != retrysafe.StateRetryable && !hidden[[2]retrysafe.State{retrysafe.StateRetryable, s}] {
			add(retrysafe.StateInProgress)
		}
		add(s)
	}
	if path[len(path)-1] == retrysafe.StateRetryable && r.State != retrysafe.StateRetryable {
		add(retrysafe.StateInProgress)
	}
	if r.State == retrysafe.StateExpired {
		add(retrysafe.StateCompleted)
	}
	add(r.State)
	return path
}

// before returns the state that a note was about, where its text tells: an answer is
// forgotten or erased, and evidence settles an unknown outcome. What a sweeper settles had
// no other state in between.
func before(n *retrysafe.Note) retrysafe.State {
	switch {
	case strings.HasPrefix(n.Text, "forgotten:"), strings.HasPrefix(n.Text, "erased:"):
		return retrysafe.StateCompleted
	case n.By != "sweeper" && (n.State == retrysafe.StateCompleted || n.State == retrysafe.StateRetryable):
		return retrysafe.StateUnknown
	default:
		return newKey
	}
}
