package linear

import (
	"math"
	"slices"
)

// kolmogorov returns how likely it is that two samples of one distribution differ at
// least as much as these, by the test of Kolmogorov and Smirnov. It orders them.
func kolmogorov(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	slices.Sort(a)
	slices.Sort(b)
	na, nb := float64(len(a)), float64(len(b))
	apart, i, j := 0.0, 0, 0
	for i < len(a) && j < len(b) {
		at := min(a[i], b[j])
		for i < len(a) && a[i] <= at {
			i++
		}
		for j < len(b) && b[j] <= at {
			j++
		}
		apart = max(apart, math.Abs(float64(i)/na-float64(j)/nb))
	}
	root := math.Sqrt(na * nb / (na + nb))
	return tail((root + 0.12 + 0.11/root) * apart)
}

// tail is Kolmogorov's distribution: how likely a distance of at least l is.
func tail(l float64) float64 {
	if l < 0.2 { // where the series is slow, and the sum is one to twelve digits
		return 1
	}
	sum, sign := 0.0, 2.0
	for k := 1.0; k <= 100; k++ {
		term := sign * math.Exp(-2*k*k*l*l)
		if sum += term; math.Abs(term) < 1e-12*math.Abs(sum) {
			break
		}
		sign = -sign
	}
	return min(1, max(0, sum))
}
