package bench_test

import (
	"fmt"
	"slices"
	"time"
)

// A series holds the samples of one system, one for each round.
type series []sample

// A figure is one thing that a sample says.
type figure func(sample) float64

func perSecond(s sample) float64 { return float64(s.calls) / s.lasted.Seconds() }
func p50(s sample) float64       { return s.percentile(50) }
func p99(s sample) float64       { return s.percentile(99) }
func clientMicros(s sample) float64 {
	return s.perCall(float64(s.clientCPU) / float64(time.Microsecond))
}
func serverMicros(s sample) float64 {
	return s.perCall(float64(s.serverCPU) / float64(time.Microsecond))
}
func walPerCall(s sample) float64 { return s.perCall(float64(s.wal)) }
func diskPerKey(s sample) float64 { return s.disk }
func hotShare(s sample) float64   { return 100 * s.hot }

func (s sample) perCall(v float64) float64 { return v / float64(max(s.calls, 1)) }

// percentile is in microseconds.
func (s sample) percentile(p int) float64 {
	if len(s.took) == 0 {
		return 0
	}
	return float64(s.took[min(len(s.took)*p/100, len(s.took)-1)]) / float64(time.Microsecond)
}

// A spread is the median of several rounds, with the least and the most.
type spread struct{ mid, low, high float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]}
}

func (s series) of(f figure) spread {
	values := make([]float64, len(s))
	for i, one := range s {
		values[i] = f(one)
	}
	return spreadOf(values)
}

// over divides the median of a figure by that of another series. What it spreads
// over are the ratios within each round, whose runs followed one another.
func (s series) over(o series, f figure) spread {
	ratios := make([]float64, min(len(s), len(o)))
	for i := range ratios {
		ratios[i] = f(s[i]) / f(o[i])
	}
	ratio := spreadOf(ratios)
	ratio.mid = s.of(f).mid / o.of(f).mid
	return ratio
}

// text shows the median, and the rounds' least and most where they differ.
func (s spread) text(format func(float64) string) string {
	if s.low == s.high {
		return format(s.mid)
	}
	return fmt.Sprintf("%s (%s–%s)", format(s.mid), format(s.low), format(s.high))
}

func times(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f ×", v)
	case v >= 10:
		return fmt.Sprintf("%.1f ×", v)
	default:
		return fmt.Sprintf("%.2f ×", v)
	}
}

func bytesText(v float64) string { return count(v) + " B" }
func percent(v float64) string   { return fmt.Sprintf("%.0f %%", v) }

// count shows a number with its thousands apart.
func count(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// micros shows a duration in microseconds by three digits.
func micros(v float64) string {
	switch {
	case v >= 100_000:
		return fmt.Sprintf("%.0f ms", v/1000)
	case v >= 10_000:
		return fmt.Sprintf("%.1f ms", v/1000)
	case v >= 1000:
		return fmt.Sprintf("%.2f ms", v/1000)
	case v >= 10:
		return fmt.Sprintf("%.0f µs", v)
	default:
		return fmt.Sprintf("%.1f µs", v)
	}
}
