package bench

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

const chartStyle = `<style>
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
  .head { font-size: 16px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .page { fill: #ffffff } .grid { stroke: #d1d9e0 } .whisker { stroke: #1f2328 }
  .s0 { fill: #8c959f } .s1 { fill: #1f6feb } .s2 { fill: #8250df }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .page { fill: #0d1117 } .grid { stroke: #30363d } .whisker { stroke: #e6edf3 }
    .s0 { fill: #768390 } .s1 { fill: #58a6ff } .s2 { fill: #a371f7 }
  }
</style>`

// Chart writes the rates as an SVG image: a group of bars for each number of clients, a bar
// for each load, and a line from the least to the most of the rounds. Replays write nothing:
// they are so much faster that the others would be hard to compare beside them.
func (r *Report) Chart(w io.Writer) error {
	const (
		width, height = 760, 420
		left, right   = 72, 20
		top, bottom   = 96, 52
		plotWidth     = width - left - right
		plotHeight    = height - top - bottom
		steps         = 5
	)
	var clients []int
	var loads []Load
	highest := 1.0
	rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Load == Replay })
	for _, row := range rows {
		if !slices.Contains(clients, row.Clients) {
			clients = append(clients, row.Clients)
		}
		if !slices.Contains(loads, row.Load) {
			loads = append(loads, row.Load)
		}
		highest = max(highest, row.Most)
	}
	step := stepAbove(highest / steps)
	y := func(v float64) float64 { return top + plotHeight*(1-v/(step*steps)) }
	group := plotWidth / float64(max(len(clients), 1))
	bar := min(0.8*group/float64(max(len(loads), 1)), 36)

	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, width, height)
	line(`<title id="title">Keys per second by clients, for each load</title>`)
	line("%s", chartStyle)
	line(`<rect class="page" width="%d" height="%d" rx="6"/>`, width, height)
	line(`<text class="head" x="%d" y="28">Keys per second, each durable</text>`, left)
	line(`<text class="small" x="%d" y="46">%s</text>`, left, escaped(r.Store))
	for i, l := range loads {
		x := left + i*120
		line(`<rect class="s%d" x="%d" y="60" width="12" height="12" rx="2"/><text x="%d" y="71">%s</text>`, color(l), x, x+18, l)
	}
	for i := range steps + 1 {
		v := step * float64(i)
		line(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, width-right, y(v), y(v))
		line(`<text class="small" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, y(v)+4, rate(v))
	}
	for _, row := range rows {
		centre := left + group*(float64(slices.Index(clients, row.Clients))+0.5)
		x := centre + bar*(float64(slices.Index(loads, row.Load))-float64(len(loads))/2)
		middle := x + bar/2
		line(`<rect class="s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s, %s: %s/s</title></rect>`,
			color(row.Load), x+1, y(row.PerSecond), bar-2, y(0)-y(row.PerSecond), row.Load, terminal.Count(row.Clients, "client", "clients"), rate(row.PerSecond))
		line(`<line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, middle, middle, y(row.Least), y(row.Most))
		line(`<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, middle, y(row.Most)-5, short(row.PerSecond))
	}
	for i, n := range clients {
		line(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, left+group*(float64(i)+0.5), height-bottom+20, terminal.Count(n, "client", "clients"))
	}
	line(`<text class="small" x="%d" y="%d">Round trip %s, commit %s. Medians of %d rounds; thin lines: the least and the most of them.</text>`,
		left, height-12, Milliseconds(r.RoundTripSeconds), Milliseconds(r.CommitSeconds), rounds)
	line(`</svg>`)
	_, err := w.Write(out.Bytes())
	return err
}

// color returns the number of a load's color, the same in every chart.
func color(l Load) int { return slices.Index([]Load{Bare, Fresh, OneCommit}, l) }

func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(printable.Text(text))) // a buffer takes everything
	return b.String()
}

// stepAbove returns the next round number.
func stepAbove(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 2.5, 3, 4, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// short returns a rate for the top of a bar.
func short(v float64) string {
	switch {
	case v < 1000:
		return rate(v)
	case v < 10_000:
		return fmt.Sprintf("%.1fk", v/1000)
	default:
		return fmt.Sprintf("%.0fk", v/1000)
	}
}
