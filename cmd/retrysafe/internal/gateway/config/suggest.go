package config

import (
	"fmt"
	"strings"
)

// didYouMean returns "; did you mean x?" for the candidate that is nearest to
// what was written, or nothing if none is near.
func didYouMean(written string, candidates []string) string {
	if best := nearest(written, candidates); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// nearest returns the candidate that was probably meant by what was written, or "".
func nearest(written string, candidates []string) string {
	best, least := "", 1+max(1, min(len(written)/3, 3))
	for _, c := range candidates {
		if d := distance(folded(written), folded(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// folded makes on5xx, on-5xx and on_5xx the same, and maxRequest and max_request.
func folded(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
}

// distance counts the letters to insert, remove, replace or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				rows[0][j] = j
				continue
			}
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
