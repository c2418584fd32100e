package ledger_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// What we do not know is listed as such: neither as missing nor as different.
func TestUnknownOutcomesAreListedAsSuch(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ours := ledger.Of(
		ledger.Entry{ID: "a", Fields: map[string]string{"amount": "1"}, Time: at},
		ledger.Entry{ID: "b", Unknown: "unknown", Time: at}, ledger.Entry{ID: "c", Unknown: "in_progress", Time: at},
		ledger.Entry{ID: "d", Unknown: "unknown", Time: at.Add(-48 * time.Hour)},
		ledger.Entry{ID: "e", Unknown: "unknown", Time: at}, // theirs has no field either
		ledger.Entry{ID: "s k", Unknown: "unknown", Unidentified: true, Record: "s k", Time: at},
		ledger.Entry{ID: "a", Unidentified: true, Record: "s a", Time: at}, // a name is no id
		ledger.Entry{ID: "s old", Unidentified: true, Time: at.Add(-48 * time.Hour)})
	theirs := ledger.Of(ledger.Entry{ID: "a", Fields: map[string]string{"amount": "1.00"}}, ledger.Entry{ID: "b", Fields: map[string]string{"amount": "2"}}, ledger.Entry{ID: "e"})
	var kinds []string
	sum, err := ledger.Compare(t.Context(), ours, theirs, ledger.Each(func(d ledger.Difference) error {
		kinds = append(kinds, d.Kind.String()+" "+d.ID)
		return nil
	}), &ledger.Options{Amounts: []string{"amount"}, Since: at.Add(-12 * time.Hour), Until: at.Add(12 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	want := "unknown_confirmed b, unknown c, pending_ours d, unknown_confirmed e, unidentified a, unknown s k, pending_ours s old"
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if want := (ledger.Summary{Complete: true, Ours: 8, Theirs: 3, Same: 1, Unknown: 2, UnknownConfirmed: 2, Unidentified: 1, PendingOurs: 2}); sum != want || sum.Clean() {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}

// With a lag our rows are judged that much later, also those without an id.
func TestLagMovesOurPeriod(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	rows := func(unidentified bool, name string) (all []ledger.Entry) {
		for id, before := range map[string]time.Duration{"last": time.Hour, "judged": time.Hour + 1, "carried": 25 * time.Hour, "early": 25*time.Hour + 1} {
			all = append(all, ledger.Entry{ID: name + id, Time: until.Add(-before), Unidentified: unidentified})
		}
		return all
	}
	theirs := []ledger.Entry{{ID: "theirs", Time: until.Add(-time.Minute)}, {ID: "theirs of the day before", Time: until.Add(-24*time.Hour - time.Minute)}}
	got, _ := found(t, ledger.Of(append(rows(false, ""), rows(true, "s ")...)...), ledger.Of(theirs...), &ledger.Options{Since: until.Add(-24 * time.Hour), Until: until, Lag: time.Hour})
	want := "only_ours carried, pending_ours early, only_ours judged, pending_ours last, only_theirs theirs, pending_theirs theirs of the day before, " +
		"unidentified s carried, pending_ours s early, unidentified s judged, pending_ours s last"
	if strings.Join(got, ", ") != want {
		t.Errorf("found %q\nwant %q", got, want)
	}
}

func TestHTMLReport(t *testing.T) {
	t.Parallel()
	const nasty = `<script>alert("x")</script>`
	ours := ledger.Of(ledger.Entry{ID: nasty, Record: "acme " + nasty, Fields: map[string]string{"amount": "\x1b[31m"}}, ledger.Entry{ID: "b", Unknown: "unknown", Record: "acme b"})
	theirs := ledger.Of(ledger.Entry{ID: "b", Line: 2, Fields: map[string]string{"amount": "7"}}, ledger.Entry{ID: "c", Line: 3})
	var b strings.Builder
	report(t, ledger.HTMLReport(&b, ledger.Heading{Title: "ledger stripe, 2026-03-01", Lines: []string{"theirs: " + nasty}}), ours, theirs)
	page := b.String()
	for _, want := range []string{"<title>ledger stripe, 2026-03-01: differences</title>", "unknown_confirmed", "retrysafe keys resolve", "retrysafe keys show acme b", "default-src 'none'",
		"<th>only_theirs<td class=\"n\">1<td>their list has a payment", "<code>b</code><td><code>state=unknown</code><td><code>line 2 amount=7</code><td>",
		"<code>c</code><td><span class=\"mute\">-</span><td><code>line 3</code><td>", "<td><span class=\"mute\">-</span><td><code>retrysafe keys show acme &lt;script"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, bad := range []string{"<script", "\x1b", "http://", "https://"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if path := os.Getenv("LEDGER_PAGE"); path != "" {
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.Reset()
	report(t, ledger.HTMLReport(&b, ledger.Heading{Title: "t"}), ledger.Of(row("a")), ledger.Of(row("a")))
	if !strings.Contains(b.String(), "<title>t: clean</title>") {
		t.Errorf("got %s", b.String())
	}
	b.Reset()
	r := ledger.HTMLReport(&b, ledger.Heading{Title: "t"})
	for range 3000 {
		if err := r.Add(ledger.Difference{Kind: ledger.KindOnlyOurs, ID: "x", Ours: ledger.Entry{ID: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.End(ledger.Summary{OnlyOurs: 3000}, errors.New("cut off")); err != nil || !strings.Contains(b.String(), "1000 more rows") || !strings.Contains(b.String(), "The comparison has stopped: cut off.") || !strings.Contains(b.String(), "<title>t: incomplete</title>") {
		t.Errorf("a long report: %v", err)
	}
}
