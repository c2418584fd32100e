package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// At a terminal progress is one line that is rewritten and removed; elsewhere it is a
// line every ten seconds.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		var b bytes.Buffer
		s := &Streams{Err: &b, Interactive: func(any) bool { return live }}
		g := s.Progress()
		now := g.started
		g.now = func() time.Time { return now }
		for i := range 40 {
			now = now.Add(time.Second)
			g.Show(int64(i+1)*1000, "copied")
		}
		g.End()
		if live {
			if got := b.String(); strings.Contains(got, "\n") || strings.Count(got, "\r") != 42 || !strings.Contains(got, "\r40,000 copied (1,000/s)") || !strings.HasSuffix(got, " \r") {
				t.Errorf("at a terminal: %q", got)
			}
		} else if got := b.String(); got != "10,000 copied (1,000/s)\n20,000 copied (1,000/s)\n30,000 copied (1,000/s)\n40,000 copied (1,000/s)\n" {
			t.Errorf("elsewhere: %q", got)
		}
	}
}

// The time that is left follows from the pace of the work since it began, which may be
// long before the progress did.
func TestProgressOfAPart(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := &Streams{Err: &b, Interactive: func(any) bool { return false }}
	g := s.Progress()
	now := g.started.Add(time.Hour)
	g.now = func() time.Time { return now }
	began := now.Add(-30 * time.Second)
	g.ShowPart(1000, 5000, "sim", began)
	now = now.Add(10 * time.Second)
	g.ShowPart(5000, 5000, "sim", began)
	if got := b.String(); got != "1,000 of 5,000 in sim (2m0s left)\n5,000 of 5,000 in sim\n" {
		t.Error(got)
	}
}
