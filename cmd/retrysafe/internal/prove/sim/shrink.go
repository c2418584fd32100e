package sim

// shrink returns a shorter list of decisions that breaks the same promise: it takes
// decisions out, or puts the plainest one in their place, for as long as that works
// and there are replays left.
func (w *world) shrink(decisions []uint32, invariant string, replays int) []uint32 {
	best := decisions
	breaks := func(try []uint32) bool {
		if replays--; replays < 0 {
			return false
		}
		w.replay(try)
		if w.broken == nil || w.broken.invariant != invariant {
			return false
		}
		best = append([]uint32(nil), try...)
		return true
	}
	for size := len(best); size > 1; size /= 2 { // nothing after the breach matters, and often more
		for len(best) > size && breaks(best[:len(best)-size]) {
		}
	}
	try := make([]uint32, 0, len(best))
	for size := max(len(best)/2, 1); size > 0; size /= 2 {
		for at := 0; at < len(best) && replays > 0; {
			end := min(at+size, len(best))
			if breaks(append(append(try[:0], best[:at]...), best[end:]...)) {
				continue
			}
			if plain(best[at:end]) || !breaks(zeroed(append(try[:0], best...), at, end)) {
				at = end
				continue
			}
			at = end
		}
	}
	return best
}

func plain(decisions []uint32) bool {
	for _, d := range decisions {
		if d != 0 {
			return false
		}
	}
	return true
}

func zeroed(decisions []uint32, from, to int) []uint32 {
	clear(decisions[from:to])
	return decisions
}

// from runs the schedule that a seed decides.
func (w *world) from(seed uint64) {
	w.chance = chance{state: mixed(seed), keeps: w.keeps, taken: w.taken[:0]}
	w.schedule()
}

// replay runs the schedule that a list of decisions makes.
func (w *world) replay(decisions []uint32) {
	w.chance = chance{script: decisions, scripted: true}
	w.schedule()
}

// explain runs a schedule that breaks a promise again, makes it as short as it gets,
// and returns how it comes about.
func (w *world) explain(seed uint64, replays int) []string {
	w.keeps = true
	w.from(seed)
	if w.broken == nil {
		w.keeps = false
		return []string{"the seed does not show it again"}
	}
	decisions := w.shrink(append([]uint32(nil), w.taken...), w.broken.invariant, replays)
	w.keeps, w.traces = false, true
	w.replay(decisions)
	w.traces = false
	return w.trace
}
