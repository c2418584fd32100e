package main

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// progress says how long work goes on: in one line that changes, at a terminal, and
// otherwise in a line now and then.
type progress struct {
	w       io.Writer
	live    bool
	every   time.Duration
	now     func() time.Time
	started time.Time
	last    time.Time
	width   int // of the line that is there
}

func (p *program) progress() *progress {
	g := &progress{w: p.stderr, live: p.person(p.stderr), every: 10 * time.Second, now: time.Now}
	if g.live {
		g.every = 200 * time.Millisecond
	}
	g.started = g.now()
	g.last = g.started
	return g
}

// show says how many of something are done, if it is time to. What must be visible.
func (g *progress) show(n int64, what string) {
	now := g.now()
	line := grouped(n) + " " + what
	if took := now.Sub(g.started); took >= time.Second {
		line += fmt.Sprintf(" (%s/s)", grouped(int64(float64(n)/took.Seconds())))
	}
	g.print(now, line)
}

// showPart says how much of something that began at a moment is done, and how long
// the rest takes at that pace.
func (g *progress) showPart(done, of int, what string, began time.Time) {
	now := g.now()
	line := fmt.Sprintf("%s of %s in %s", grouped(int64(done)), grouped(int64(of)), what)
	if took := now.Sub(began); done > 0 && done < of && took >= time.Second {
		left := took.Seconds() / float64(done) * float64(of-done)
		line += fmt.Sprintf(" (%v left)", time.Duration(left)*time.Second)
	}
	g.print(now, line)
}

// print shows a line, if it is time to.
func (g *progress) print(now time.Time, line string) {
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

// watch shows what count says, until stopped.
func (g *progress) watch(count func() (n int64, what string)) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(g.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.show(count())
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		g.end()
	}
}

// end takes the line away that changes.
func (g *progress) end() {
	if g.width > 0 {
		fmt.Fprintf(g.w, "\r%*s\r", g.width, "")
		g.width = 0
	}
}
