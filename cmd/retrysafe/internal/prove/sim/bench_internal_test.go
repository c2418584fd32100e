package sim

import "testing"

func BenchmarkSchedule(b *testing.B) {
	w := &world{}
	defer w.close()
	seed, steps := uint64(0), 0
	for b.Loop() {
		w.from(seed)
		seed++
		steps += w.steps
	}
	b.ReportMetric(float64(steps)/float64(b.N), "steps/op")
}
