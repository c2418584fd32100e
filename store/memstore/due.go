package memstore

import "time"

// noPlace is the place of an entry that is not in the heap.
const noPlace = -1

// A dueHeap orders forgettable entries by deadline, so that a purge finds what is due
// without a scan and holds the lock only while it deletes.
//
// Answers with equal retention arrive in the order of their deadlines, so a push mostly
// makes one comparison.
type dueHeap []dueItem

type dueItem struct {
	at time.Time // the entry's deadline, copied for locality
	e  *entry
}

func (h *dueHeap) push(e *entry) {
	e.place = len(*h)
	*h = append(*h, dueItem{e.rec.Deadline, e})
	h.up(e.place)
}

// move restores the order after the entry's deadline has changed.
func (h *dueHeap) move(e *entry) {
	(*h)[e.place].at = e.rec.Deadline
	h.up(e.place)
	h.down(e.place)
}

// remove removes the entry from the heap.
func (h *dueHeap) remove(e *entry) {
	i, last := e.place, len(*h)-1
	h.swap(i, last)
	(*h)[last] = dueItem{}
	*h = (*h)[:last]
	e.place = noPlace
	if i < last {
		moved := (*h)[i].e
		h.up(i)
		h.down(moved.place)
	}
}

// first returns the entry with the earliest deadline if that has passed.
func (h dueHeap) first(now time.Time) *entry {
	if len(h) == 0 || now.Before(h[0].at) {
		return nil
	}
	return h[0].e
}

func (h *dueHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].at.Before((*h)[parent].at) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *dueHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return
		}
		if right := child + 1; right < len(*h) && (*h)[right].at.Before((*h)[child].at) {
			child = right
		}
		if !(*h)[child].at.Before((*h)[i].at) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *dueHeap) swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	a[i].e.place, a[j].e.place = i, j
}
