package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// parseSpan reads a duration as Go writes it, with d for days before the rest:
// 30s, 1h30m, 7d, 1d12h.
func parseSpan(text string) (time.Duration, bool) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	n, err := strconv.ParseUint(days, 10, 31)
	if err != nil || n > uint64(math.MaxInt64/day) {
		return 0, false
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, true
	}
	more, err := time.ParseDuration(rest)
	if err != nil || strings.ContainsAny(rest[:1], "+-") || d+more < d {
		return 0, false
	}
	return d + more, true
}

// printSpan writes a duration such that parseSpan reads it back.
func printSpan(d time.Duration) string {
	if d >= 2*day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// units are what sizes are counted in, the larger ones of a kind first.
var units = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// parseSize reads a number of bytes: 1048576, 1MiB, 64KB.
func parseSize(text string) (int64, bool) {
	scale := int64(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			text, scale = strings.TrimSuffix(number, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/scale {
		return 0, false
	}
	return int64(n) * scale, true
}

// printSize writes a size such that parseSize reads it back.
func printSize(n int64) string {
	for _, u := range units[:3] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
