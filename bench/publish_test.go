package bench_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The section of the document that a run writes stands between these lines.
const (
	docBegin = "<!-- durable: written by make bench-durable -->"
	docEnd   = "<!-- durable: end -->"
)

// publish replaces the document's section and the chart.
func (r *report) publish(doc, chart string) error {
	text, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(docBegin))
	_, after, ended := bytes.Cut(rest, []byte(docEnd))
	if !ok || !ended {
		return fmt.Errorf("%s has no section between %q and %q", doc, docBegin, docEnd)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s%s\n\n%s\n\n![Fresh keys per second by clients, for each system](%s)\n", before, docBegin, wrap(r.conditions, 118), filepath.Base(chart))
	goals := r.goals()
	for _, t := range append([]table{goals}, r.tables...) {
		t.write(&out)
	}
	fmt.Fprintf(&out, "\n%s%s", docEnd, after)
	if err := os.WriteFile(doc, out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(chart, r.chart(), 0o644)
}

// conditions says on what and how was measured.
func conditions(t testing.TB, s scale) string {
	return fmt.Sprintf("Measured on %s: %s, %d cores for clients and server together, %s, PostgreSQL 15 with 128 MB of shared buffers and "+
		"everything durable, a flush of 8 kB in %s. %d interleaved rounds of %v; medians, in brackets the least and the most of the rounds.",
		time.Now().UTC().Format(time.DateOnly), processor(), runtime.NumCPU(), runtime.Version(), micros(flushMicros(t)), s.rounds, s.run)
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// flushMicros is how long fdatasync takes where the servers' data is.
func flushMicros(t testing.TB) float64 {
	file, err := os.CreateTemp(t.TempDir(), "flush")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var took []float64
	for range 101 {
		if _, err := file.WriteAt(make([]byte, 8192), 0); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			t.Fatal(err)
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1000)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
