package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
)

// A report says what became of the mutants of one run.
type report struct {
	pkg     string
	all     int // how many mutants the package has
	verbose bool
	listed  []*mutant // with -list, which runs nothing
	broken  []string  // tests that fail without a mutant

	mu        sync.Mutex
	reached   map[*mutant]int // how many tests reach it
	killed    int
	survived  []*mutant
	unreached []*mutant
}

// note counts what one suite says of m.
func (r *report) note(m *mutant, reaching int, killer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reached == nil {
		r.reached = map[*mutant]int{}
	}
	r.reached[m] += reaching
	if killer != "" {
		r.killed++
	}
}

// left sorts the mutants that no suite has noticed.
func (r *report) left(open []*mutant) {
	for _, m := range open {
		if r.reached[m] > 0 {
			r.survived = append(r.survived, m)
		} else {
			r.unreached = append(r.unreached, m)
		}
	}
}

func (r *report) print(w io.Writer) {
	if r.listed != nil {
		for _, m := range r.listed {
			fmt.Fprintln(w, m)
		}
		fmt.Fprintf(w, "%s: %d of %d\n", r.pkg, len(r.listed), r.all)
		return
	}
	slices.Sort(r.broken)
	for _, name := range r.broken {
		fmt.Fprintln(w, "fails without a mutant, so it did not take part:", name)
	}
	for _, m := range r.survived {
		fmt.Fprintln(w, "survived:", m)
	}
	for _, m := range r.unreached {
		fmt.Fprintln(w, "not reached:", m)
	}
	fmt.Fprintf(w, "%s: %d killed, %d survived, %d not reached; %d of %d planted\n", r.pkg,
		r.killed, len(r.survived), len(r.unreached), r.killed+len(r.survived)+len(r.unreached), r.all)
}
