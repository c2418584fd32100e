package linear

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// trace is the history in words, in the order of its calls.
func (h *history) trace() []string {
	steps := slices.SortedFunc(slices.Values(h.steps), func(a, b *step) int { return cmp.Compare(a.Call, b.Call) })
	var lines []string
	for _, s := range steps {
		lines = append(lines, s.since(steps[0].Call))
	}
	return lines
}

func (s *step) String() string { return s.since(0) }

// since is the step in words, its times counted from some time.
func (s *step) since(start int64) string {
	var b strings.Builder
	until := "never"
	if s.Return != never && s.Return != 0 {
		until = time.Duration(s.Return - start).String()
	}
	fmt.Fprintf(&b, "%v–%s worker %d: %s", time.Duration(s.Call-start), until, s.Worker, s.verb())
	if s.writes() {
		fmt.Fprintf(&b, " %s as %s by %s", s.Ask.State, textOf(s.Ask.Mark), textOf(s.Ask.Owner))
		if s.Do == swap {
			fmt.Fprintf(&b, " at %d", s.Ask.Revision)
		}
		for _, flag := range []struct {
			set  bool
			name string
		}{{s.Ask.Overwrite, "overwrites"}, {s.Ask.Point, "has a checkpoint"}, {s.Ask.SetPoint, "sets the checkpoint"}} {
			if flag.set {
				b.WriteString(", " + flag.name)
			}
		}
		fmt.Fprintf(&b, ", for %v", time.Duration(s.Ask.Term)*time.Microsecond)
	}
	fmt.Fprintf(&b, ": %s", endNames[s.End])
	if g := &s.Got; g.Revision != 0 {
		fmt.Fprintf(&b, ": %s at %d by %s, written by %s, begun by %s", g.State, g.Revision, textOf(g.Owner), textOf(g.Tail), textOf(g.Head))
		if g.Point != 0 {
			fmt.Fprintf(&b, ", checkpoint of %s", textOf(g.Point))
		}
		fmt.Fprintf(&b, ", due %d, read %d", g.Deadline, g.ReadAt)
	}
	return b.String()
}

func (s *step) verb() string {
	verb := [...]string{"?", "load", "create", "swap", "purge"}[s.Do]
	switch {
	case s.How != alone && s.Do == load:
		return "reserve"
	case s.How != alone:
		return verb + " in a transaction"
	}
	return verb
}
