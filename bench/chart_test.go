package bench_test

import (
	"bytes"
	"fmt"
	"math"
)

// chart draws the rates of fresh keys as groups of bars, one group for each
// number of clients. It brings its own background for light and for dark, so
// that it is readable on any page.
func (r *report) chart() []byte {
	const (
		width, height    = 760, 400
		left, right      = 64, 20
		top, bottom      = 76, 52
		plotWidth        = width - left - right
		plotHeight       = height - top - bottom
		barWidth, barGap = 32, 4
		steps            = 5
	)
	systems := []system{bare, article, ours, oursCached}
	most := 1.0
	for _, g := range r.bars {
		for _, s := range g.rates {
			most = max(most, s.high)
		}
	}
	step := roundUp(most / steps)
	y := func(v float64) float64 { return top + plotHeight*(1-v/(step*steps)) }

	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, width, height)
	line(`<title id="title">Fresh keys per second by clients, for each system</title>`)
	line(`<style>
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
  .head { font-size: 16px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .page { fill: #ffffff } .grid { stroke: #d1d9e0 } .whisker { stroke: #1f2328 }
  .s0 { fill: #8c959f } .s1 { fill: #d4843e } .s2 { fill: #1f6feb } .s3 { fill: #2da082 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .page { fill: #0d1117 } .grid { stroke: #30363d } .whisker { stroke: #e6edf3 }
    .s0 { fill: #768390 } .s1 { fill: #e3964f } .s2 { fill: #58a6ff } .s3 { fill: #3fb99b }
  }
</style>`)
	line(`<rect class="page" width="%d" height="%d" rx="6"/>`, width, height)
	line(`<text class="head" x="%d" y="28">Fresh keys per second, each reserved and completed durably</text>`, left)
	for i, s := range systems {
		x := left + i*120
		line(`<rect class="s%d" x="%d" y="42" width="12" height="12" rx="2"/><text x="%d" y="53">%s</text>`, i, x, x+18, s.name)
	}
	for i := range steps + 1 {
		v := step * float64(i)
		line(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, width-right, y(v), y(v))
		line(`<text class="small" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, y(v)+4, count(v))
	}
	for i, g := range r.bars {
		centre := left + plotWidth*(float64(i)+0.5)/float64(len(r.bars))
		x := centre - float64(len(systems)*(barWidth+barGap)-barGap)/2
		for j, s := range systems {
			rate := g.rates[s.name]
			middle := x + barWidth/2.0
			line(`<rect class="s%d" x="%.1f" y="%.1f" width="%d" height="%.1f"><title>%s, %s: %s keys/s</title></rect>`,
				j, x, y(rate.mid), barWidth, y(0)-y(rate.mid), s.name, clientsText(g.clients), rate.text(count))
			line(`<line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, middle, middle, y(rate.low), y(rate.high))
			line(`<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, middle, y(rate.high)-5, thousands(rate.mid))
			x += barWidth + barGap
		}
		line(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, centre, height-bottom+20, clientsText(g.clients))
	}
	line(`<text class="small" x="%d" y="%d">PostgreSQL 15, clients and server on the same machine. Medians; thin lines: the least and the most of the rounds.</text>`, left, height-12)
	line(`</svg>`)
	return out.Bytes()
}

// roundUp returns the next of 1, 2, 2.5, 5 times a power of ten.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

func thousands(v float64) string {
	if v < 10_000 {
		return fmt.Sprintf("%.1fk", v/1000)
	}
	return fmt.Sprintf("%.0fk", v/1000)
}
