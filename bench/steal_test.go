package bench_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// mostStolen is the share of the processors' time that the host of a virtual machine may
// take away while something is measured.
const mostStolen = 0.02

// disturbances count the runs that the host of this machine has disturbed.
type disturbances struct{ runs, repeated, kept int }

func (d disturbances) String() string {
	if d.repeated == 0 {
		return ""
	}
	return fmt.Sprintf(" The host took more than %s of the processors from %d of %d runs, which were repeated; %d stayed so.",
		percent(100*mostStolen), d.repeated, d.runs, d.kept)
}

// undisturbed measures, and does so again while the host takes processors away, a few times
// at most. The least disturbed run counts.
func (l *lab) undisturbed(measure func() sample) (best sample) {
	l.report.disturbed.runs++
	least := 2.0
	for try := 0; try <= l.again; try++ {
		before := readProcessorTime()
		got := measure()
		if stolen := readProcessorTime().stolenSince(before); stolen < least {
			least, best = stolen, got
		}
		if least <= mostStolen {
			return best
		}
		if try == 0 && l.again > 0 {
			l.report.disturbed.repeated++
		}
	}
	l.report.disturbed.kept++
	return best
}

// processorTime is what the system's processors have done since it began, in its own units.
type processorTime struct{ stolen, all float64 }

// readProcessorTime returns zero where the system does not say.
func readProcessorTime() (p processorTime) {
	const steal = 8 // behind user, nice, system, idle, iowait, irq and softirq; guests are in user's
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	for i, field := range bytes.Fields(line) {
		n, err := strconv.ParseFloat(string(field), 64)
		if i == 0 || i > steal || err != nil {
			continue
		}
		p.all += n
		if i == steal {
			p.stolen = n
		}
	}
	return p
}

// stolenSince is the share of the time since before that the host has taken.
func (p processorTime) stolenSince(before processorTime) float64 {
	return (p.stolen - before.stolen) / max(p.all-before.all, 1)
}
