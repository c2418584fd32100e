package telemetry_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry"
)

func TestExchange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		route, outcome string
		status         int
		want           [3]string // route, outcome and status as they are shown
	}{
		"fresh":                 {"POST /payments", "fresh", 201, [3]string{"POST /payments", "fresh", "2xx"}},
		"replay":                {"POST /payments", "replay", 402, [3]string{"POST /payments", "replay", "4xx"}},
		"accepted":              {"POST /payments", "accepted", 202, [3]string{"POST /payments", "accepted", "2xx"}},
		"observed":              {"POST /payments", "observed", 200, [3]string{"POST /payments", "observed", "2xx"}},
		"refused":               {"POST /payments", "refused", 503, [3]string{"POST /payments", "refused", "5xx"}},
		"passed":                {"POST /payments", "passed", 304, [3]string{"POST /payments", "passed", "3xx"}},
		"an unknown outcome":    {"POST /payments", "hacked\"}", 200, [3]string{"POST /payments", "other", "2xx"}},
		"an undeclared route":   {"POST /payments/17", "fresh", 200, [3]string{"other", "fresh", "2xx"}},
		"no route":              {"", "passed", 404, [3]string{"other", "passed", "4xx"}},
		"no status":             {"POST /payments", "fresh", 0, [3]string{"POST /payments", "fresh", "none"}},
		"a status that is none": {"POST /payments", "fresh", 999, [3]string{"POST /payments", "fresh", "none"}},
		"a negative status":     {"POST /payments", "fresh", -200, [3]string{"POST /payments", "fresh", "none"}},
		"switching protocols":   {"POST /payments", "passed", 101, [3]string{"POST /payments", "passed", "1xx"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := telemetry.New(nil)
			m.Routes("POST /payments")
			got := moved(t, m, func() { m.Exchange(c.route, c.outcome, c.status, time.Second) })
			want := map[string]float64{
				fmt.Sprintf("retrysafe_responses_total{outcome=%q,route=%q,status=%q}", c.want[1], c.want[0], c.want[2]): 1,
				fmt.Sprintf("retrysafe_request_duration_seconds{outcome=%q,route=%q}", c.want[1], c.want[0]):             1,
			}
			if !maps.Equal(got, want) {
				t.Errorf("it moves %v, want %v", got, want)
			}
		})
	}
}

func TestDurationsFallIntoTheirBuckets(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	for _, took := range []time.Duration{-time.Hour, 0, time.Millisecond, time.Millisecond + 1, 5 * time.Minute, time.Hour} {
		m.Exchange("", "fresh", 200, took)
	}
	text := scrape(t, m)
	const name = `retrysafe_request_duration_seconds`
	for _, line := range []string{
		name + `_bucket{outcome="fresh",route="other",le="0.0005"} 2`,
		name + `_bucket{outcome="fresh",route="other",le="0.001"} 3`, // a bound belongs to its bucket
		name + `_bucket{outcome="fresh",route="other",le="0.0025"} 4`,
		name + `_bucket{outcome="fresh",route="other",le="60"} 4`,
		name + `_bucket{outcome="fresh",route="other",le="300"} 5`,
		name + `_bucket{outcome="fresh",route="other",le="+Inf"} 6`,
		name + `_sum{outcome="fresh",route="other"} 3900.002000001`,
		name + `_count{outcome="fresh",route="other"} 6`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the scrape lacks %s", line)
		}
	}
}

// Paths that clients make up, and a configuration without measure, have one series
// together.
func TestW78_RouteLabelsAreCapped(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	o := m.Observer()
	for i := range 10_000 {
		path := fmt.Sprintf("POST /payments/%d", i)
		m.Exchange(path, "fresh", 200, time.Second)
		o.Observe(retrysafe.Event{Kind: retrysafe.EventCompleted, Operation: path, Took: time.Second})
	}
	all := shown(t, m)
	wantSeries(t, all, map[string]float64{
		`retrysafe_responses_total{outcome="fresh",route="other",status="2xx"}`: 10_000,
		`retrysafe_request_duration_seconds{outcome="fresh",route="other"}`:     10_000,
		`retrysafe_attempt_duration_seconds{outcome="completed",route="other"}`: 10_000,
	})
	for i := range 10_000 {
		m.Routes(fmt.Sprintf("POST /declared/%d", i))
		m.Exchange(fmt.Sprintf("POST /declared/%d", i), "fresh", 200, time.Second)
	}
	if n := count(shown(t, m), "retrysafe_request_duration_seconds{"); n != 201 {
		t.Errorf("there are %d routes with a label, want 200 and the others", n)
	}
}

// Names that are the same as labels are one series: a second one of that name would
// spoil the scrape.
func TestRoutesThatShareALabel(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	routes := []string{"a\xff", "a\xfe", "a�", "other", "other", "b\n\"\\"}
	m.Routes(routes...)
	m.Routes(routes...)
	for _, r := range append(routes, "undeclared") {
		m.Exchange(r, "fresh", 200, time.Second)
	}
	wantSeries(t, shown(t, m), map[string]float64{
		`retrysafe_responses_total{outcome="fresh",route="a�",status="2xx"}`:      3,
		`retrysafe_responses_total{outcome="fresh",route="other",status="2xx"}`:   3,
		`retrysafe_responses_total{outcome="fresh",route="b\n\"\\",status="2xx"}`: 1,
		`retrysafe_request_duration_seconds{outcome="fresh",route="a�"}`:          3,
		`retrysafe_request_duration_seconds{outcome="fresh",route="other"}`:       3,
	})
}

func count(all map[string]float64, prefix string) (n int) {
	for name := range all {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}
