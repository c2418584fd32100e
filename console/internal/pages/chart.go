package pages

import "fmt"

// A chart is an hour of outcomes as stacked bars, in the units of an SVG of
// chartWidth × chartHeight.
type chart struct {
	Bars    []bar
	Lines   []gridLine
	Hours   []tick
	Series  []series
	Summary string
	Empty   bool
}

type bar struct{ X, Y, W, H, Class, Title string }

type gridLine struct{ Y, TextY, Label string }

type tick struct{ X, Label string }

type series struct {
	Name, Class, Means string
	Total              int64
}

const (
	chartWidth  = 720.0
	chartHeight = 180.0
	chartLeft   = 40.0
	chartTop    = 8.0
	chartBottom = 24.0
)

func newChart(minutes []Minute) *chart {
	c := &chart{Series: []series{
		{"ran", "ran", "first attempts and attempts that were allowed to run again", 0},
		{"replayed", "replayed", "retries that got the stored answer", 0},
		{"refused", "refused", "in flight, another request under the key, or gone", 0},
		{"unknown", "unknown", "outcomes that nothing has settled yet", 0},
		{"failed", "failed", "the store or the service failed", 0},
	}}
	var most int64
	for _, m := range minutes {
		sum := int64(0)
		for i, n := range m.counts() {
			c.Series[i].Total += n
			sum += n
		}
		most = max(most, sum)
	}
	c.Empty = most == 0
	top := ceiling(most)
	plot := chartHeight - chartTop - chartBottom
	for _, part := range []int64{0, 1, 2} {
		y := chartTop + plot*(1-float64(part)/2)
		c.Lines = append(c.Lines, gridLine{unit(y), unit(y + 4), number(top * part / 2)})
	}
	step := (chartWidth - chartLeft) / float64(max(len(minutes), 1))
	for i, m := range minutes {
		x, y := chartLeft+float64(i)*step, chartTop+plot
		if i%10 == 0 {
			c.Hours = append(c.Hours, tick{unit(x), m.At.UTC().Format("15:04")})
		}
		for s, n := range m.counts() {
			if n <= 0 {
				continue
			}
			h := plot * float64(n) / float64(top)
			y -= h
			c.Bars = append(c.Bars, bar{unit(x + 1), unit(y), unit(max(step-2, 1)), unit(h), c.Series[s].Class,
				fmt.Sprintf("%s UTC: %s %s", m.At.UTC().Format("15:04"), number(n), c.Series[s].Name)})
		}
	}
	c.Summary = fmt.Sprintf("The last hour by minute: %s ran, %s replayed, %s refused, %s unknown, %s failed.", number(c.Series[0].Total),
		number(c.Series[1].Total), number(c.Series[2].Total), number(c.Series[3].Total), number(c.Series[4].Total))
	return c
}

func (m *Minute) counts() [5]int64 {
	return [5]int64{m.Ran, m.Replayed, m.Refused, m.Unknown, m.Failed}
}

// ceiling returns an even and round number that is not below n.
func ceiling(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, f := range []int64{2, 4, 6, 8, 10, 12, 16} {
			if f*unit >= n {
				return f * unit
			}
		}
	}
}

func unit(f float64) string { return fmt.Sprintf("%.1f", f) }
