package terminal

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// A Progress shows how far long work has come: at a terminal in one line that is
// rewritten, elsewhere in a line every ten seconds. It is not safe for concurrent use.
type Progress struct {
	w       io.Writer
	live    bool
	every   time.Duration
	now     func() time.Time
	started time.Time
	last    time.Time
	width   int // of the line that is shown and will be rewritten
}

// Progress returns the progress of work that begins now. It is shown on standard
// error.
func (s *Streams) Progress() *Progress {
	g := &Progress{w: s.Err, live: s.interactive(s.Err), every: 10 * time.Second, now: time.Now}
	if g.live {
		g.every = 200 * time.Millisecond
	}
	g.started = g.now()
	g.last = g.started
	return g
}

// Show shows how many things are done, and how many in a second. Most calls show
// nothing, so that it may be called for each of them.
func (g *Progress) Show(n int64, what string) {
	now := g.now()
	line := Number(n) + " " + what
	if took := now.Sub(g.started); took >= time.Second {
		line += fmt.Sprintf(" (%s/s)", Number(int64(float64(n)/took.Seconds())))
	}
	g.print(now, line)
}

// ShowPart shows how much of work is done that began at a moment, and how long the
// rest takes at the same pace.
func (g *Progress) ShowPart(done, of int, what string, began time.Time) {
	now := g.now()
	line := fmt.Sprintf("%s of %s in %s", Number(done), Number(of), what)
	if took := now.Sub(began); done > 0 && done < of && took >= time.Second {
		left := took.Seconds() / float64(done) * float64(of-done)
		line += fmt.Sprintf(" (%v left)", time.Duration(left)*time.Second)
	}
	g.print(now, line)
}

// print shows a line, unless the last one was shown too short a time ago.
func (g *Progress) print(now time.Time, line string) {
	if now.Sub(g.last) < g.every {
		return
	}
	g.last = now
	if !g.live {
		fmt.Fprintln(g.w, line)
		return
	}
	fmt.Fprintf(g.w, "\r%s%*s", line, max(g.width-utf8.RuneCountInString(line), 0), "")
	g.width = utf8.RuneCountInString(line)
}

// Watch calls count now and then and shows what it returns, until stop is called. Stop
// ends the progress.
func (g *Progress) Watch(count func() (n int64, what string)) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(g.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.Show(count())
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		g.End()
	}
}

// End removes the line that is shown, so that other output can follow.
func (g *Progress) End() {
	if g.width > 0 {
		fmt.Fprintf(g.w, "\r%*s\r", g.width, "")
		g.width = 0
	}
}
