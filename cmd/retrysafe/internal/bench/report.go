package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// A Report is what was measured.
type Report struct {
	Program string `json:"program"`
	Machine string `json:"machine"` // of the clients
	Store   string `json:"store"`
	Kind    string `json:"kind"`
	// Class is the guarantee class of the store, and why it has that one.
	Class       string    `json:"class"`
	Began       time.Time `json:"began"`
	TookSeconds float64   `json:"took_seconds"`
	// RoundTripSeconds is the median of what a request takes that does nothing, and
	// CommitSeconds of the commit of one row, both by one client.
	RoundTripSeconds float64 `json:"round_trip_seconds"`
	CommitSeconds    float64 `json:"commit_seconds"`
	Rows             []Row   `json:"rows"`
	// Sizing says what the figures mean, in a sentence or two.
	Sizing string `json:"sizing"`
}

// A Row is one load from one number of clients: medians of all rounds.
type Row struct {
	Clients   int     `json:"clients"`
	Load      Load    `json:"load"`
	PerSecond float64 `json:"per_second"`
	// Least and Most are the rates of the slowest and the fastest round.
	Least float64 `json:"least_per_second"`
	Most  float64 `json:"most_per_second"`
	// BesideBare is the rate divided by that of the bare loop, in the same round. Replays
	// have none: the bare loop knows no replays.
	BesideBare float64 `json:"beside_bare,omitempty"`
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`
	// Completed and Failed count operations of all rounds. Failure is the first one.
	Completed int    `json:"completed"`
	Failed    int    `json:"failed"`
	Failure   string `json:"failure,omitempty"`
}

// add adds the rows of one number of clients.
func (r *Report) add(clients int, loads []Load, samples map[Load][]sample) {
	for _, l := range loads {
		some := samples[l]
		row := Row{
			Clients: clients, Load: l,
			PerSecond:  middle(some, func(s *sample) float64 { return s.perSecond }),
			P50Seconds: middle(some, func(s *sample) time.Duration { return s.p50 }).Seconds(),
			P99Seconds: middle(some, func(s *sample) time.Duration { return s.p99 }).Seconds(),
			Least:      math.Inf(1),
		}
		var beside []float64
		for i := range some {
			row.Least, row.Most = min(row.Least, some[i].perSecond), max(row.Most, some[i].perSecond)
			row.Completed, row.Failed = row.Completed+some[i].done, row.Failed+some[i].failed
			if row.Failure == "" && some[i].failure != nil {
				row.Failure = some[i].failure.Error()
			}
			beside = append(beside, some[i].perSecond/samples[Bare][i].perSecond)
		}
		if slices.Sort(beside); l != Replay {
			row.BesideBare = beside[len(beside)/2]
		}
		r.Rows = append(r.Rows, row)
	}
}

// Head writes what is measured, and what it consists of.
func (r *Report) Head(w io.Writer) error {
	d := terminal.NewDetails(w)
	d.Add("store", "%s", printable.Text(r.Store))
	d.Add("", "%s", printable.Text(r.Class))
	d.Add("program", "%s on %s", r.Program, r.Machine)
	d.Add("round trip", "%s", Milliseconds(r.RoundTripSeconds))
	d.Add("commit", "%s for one row, by one client", Milliseconds(r.CommitSeconds))
	return d.Flush()
}

// Tail writes the rows, what failed, and the sizing.
func (r *Report) Tail(w io.Writer) error {
	fmt.Fprintln(w)
	t := terminal.NewTable(w, false, "CLIENTS", "LOAD", "PER SECOND", "LEAST TO MOST", "BESIDE BARE", "P50", "P99")
	for _, row := range r.Rows {
		beside := "-"
		if row.BesideBare > 0 {
			beside = fmt.Sprintf("%.2f", row.BesideBare)
		}
		t.Add(strconv.Itoa(row.Clients), string(row.Load), rate(row.PerSecond), rate(row.Least)+" to "+rate(row.Most),
			beside, Milliseconds(row.P50Seconds), Milliseconds(row.P99Seconds))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Failed > 0 {
			fmt.Fprintf(w, "\n%s, %s: %s of %s operations failed, the first with: %s\n", row.Load, terminal.Count(row.Clients, "client", "clients"),
				terminal.Number(row.Failed), terminal.Number(row.Failed+row.Completed), printable.Text(row.Failure))
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", terminal.Wrap(r.Sizing, 88))
	return err
}

func rate(v float64) string { return terminal.Number(int64(math.Round(v))) }

// Milliseconds returns a time that is short, in milliseconds or microseconds.
func Milliseconds(seconds float64) string {
	ms := seconds * 1000
	switch {
	case ms < 0.0995:
		return strconv.FormatFloat(ms*1000, 'f', 0, 64) + " µs"
	case ms >= 99.95:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms >= 9.995:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	default:
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	}
}

// row returns the row of a load, and of the number of clients that is nearest.
func (r *Report) row(l Load, clients int) (found Row) {
	for _, row := range r.Rows {
		if row.Load == l && (found.Clients == 0 || distance(row.Clients, clients) < distance(found.Clients, clients)) {
			found = row
		}
	}
	return found
}

func distance(a, b int) float64 { return math.Abs(math.Log(float64(a) / float64(b))) }

// ordinary is how many clients a busy service has at the same time.
const ordinary = 32

// Conclude sets the sizing: what the rows mean for a deployment.
func (r *Report) Conclude() {
	usual, most := r.row(Fresh, ordinary), r.row(Fresh, MaxClients)
	text := fmt.Sprintf("At %s this store takes about %s new keys a second: %s a day.",
		terminal.Count(usual.Clients, "client", "clients"), about(usual.PerSecond), inWords(usual.PerSecond*24*60*60))
	if most.PerSecond > 1.2*usual.PerSecond {
		text += fmt.Sprintf(" At %s it takes about %s.", terminal.Count(most.Clients, "client", "clients"), about(most.PerSecond))
	}
	r.Sizing = text + " " + r.limit()
}

// slow is from when on the flush or the round trip is what a key waits for, rather than the
// processors.
const slow = 0.0003

// limit says what a key waits for.
func (r *Report) limit() string {
	flush := max(r.CommitSeconds-r.RoundTripSeconds, 0)
	switch {
	case r.Kind == storeurl.DynamoDB:
		return fmt.Sprintf("A new key waits for two writes, of %s each here.", Milliseconds(r.CommitSeconds))
	case flush >= slow && flush >= r.RoundTripSeconds:
		return fmt.Sprintf("A disk flush of %s is what limits it: a new key waits for two.", Milliseconds(flush))
	case r.RoundTripSeconds >= slow:
		return fmt.Sprintf("A round trip of %s is what limits it: a new key waits for two. Run what uses the store nearer to it.", Milliseconds(r.RoundTripSeconds))
	default:
		return "Flush and round trip are short here, so processors are what limits it."
	}
}

// about returns a number with two significant digits.
func about(v float64) string {
	if v < 1 {
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return terminal.Number(int64(rounded(v)))
}

func rounded(v float64) float64 {
	unit := math.Pow(10, max(math.Floor(math.Log10(v))-1, 0))
	return math.Round(v/unit) * unit
}

// inWords returns a large number with two significant digits.
func inWords(v float64) string {
	for _, unit := range []struct {
		size float64
		word string
	}{{1e9, "billion"}, {1e6, "million"}} {
		if v >= unit.size {
			number := strconv.FormatFloat(rounded(v/unit.size*10)/10, 'f', 1, 64)
			return strings.TrimSuffix(number, ".0") + " " + unit.word
		}
	}
	return about(v)
}
