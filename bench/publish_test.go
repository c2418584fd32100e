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

// publish replaces the section of durable stores, and their chart.
func (r *report) publish(doc, chart string) error {
	if err := r.publishSection("durable", doc, fmt.Sprintf("![Fresh keys per second by clients, for each system](%s)", filepath.Base(chart))); err != nil {
		return err
	}
	return os.WriteFile(chart, r.chart(), 0o644)
}

// publishSection replaces a section of the document, which stands between two lines
// with its name.
func (r *report) publishSection(name, doc string, pictures ...string) error {
	text, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s: written by make bench-%s -->", name, name), fmt.Sprintf("<!-- %s: end -->", name)
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !ok || !ended {
		return fmt.Errorf("%s has no section between %q and %q", doc, begin, end)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s%s\n\n%s\n", before, begin, wrap(r.conditions+r.disturbed.String(), 118))
	for _, picture := range pictures {
		fmt.Fprintf(&out, "\n%s\n", picture)
	}
	goals := r.goals()
	for _, t := range append([]table{goals}, r.tables...) {
		t.write(&out)
	}
	fmt.Fprintf(&out, "\n%s%s", end, after)
	return os.WriteFile(doc, out.Bytes(), 0o644)
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
