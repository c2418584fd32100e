package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// row makes an entry of an id and pairs of names and texts.
func row(id string, pairs ...string) ledger.Entry {
	e := ledger.Entry{ID: id, Fields: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		e.Fields[pairs[i]] = pairs[i+1]
	}
	return e
}

func at(id, clock string) ledger.Entry {
	t, err := time.Parse(time.RFC3339, "2026-03-"+clock+":00Z")
	if err != nil {
		panic(err)
	}
	return ledger.Entry{ID: id, Time: t}
}

// found compares and returns each difference as "kind id fields".
func found(t *testing.T, ours, theirs ledger.Source, o *ledger.Options) ([]string, ledger.Summary) {
	t.Helper()
	var got []string
	sum, err := ledger.Compare(t.Context(), ours, theirs, ledger.Each(func(d ledger.Difference) error {
		got = append(got, strings.TrimSpace(fmt.Sprint(d.Kind, " ", d.ID, " ", strings.Join(d.Fields, ","))))
		return nil
	}), o)
	if err != nil {
		t.Fatal(err)
	}
	return got, sum
}

func TestCompare(t *testing.T) {
	t.Parallel()
	day := &ledger.Options{
		Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		Until: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC),
	}
	amounts, presorted := &ledger.Options{Amounts: []string{"amount"}}, &ledger.Options{Presorted: true}
	nameless := func(id string) ledger.Entry { return ledger.Entry{ID: id, Unidentified: true} }
	type rows = []ledger.Entry
	for _, c := range []struct {
		rule         string
		ours, theirs rows
		options      *ledger.Options
		want         []string
	}{
		{"two empty lists agree", nil, nil, nil, nil},
		{"the same rows agree", rows{row("a", "x", "1"), row("b")}, rows{row("a", "x", "1"), row("b")}, nil, nil},
		{"what we have alone is only ours", rows{row("a"), row("b"), row("c")}, rows{row("b")}, nil, []string{"only_ours a", "only_ours c"}},
		{"what they have alone is only theirs", rows{row("b")}, rows{row("a"), row("b"), row("c")}, nil, []string{"only_theirs a", "only_theirs c"}},
		{"an empty list has nothing", rows{row("a")}, nil, nil, []string{"only_ours a"}},
		{"lists may have any order", rows{row("c"), row("a", "x", "1"), row("b"), row("d")}, rows{row("d"), row("e"), row("a", "x", "2"), row("c"), row("d")}, nil,
			[]string{"different a x", "only_ours b", "duplicate_theirs d", "only_theirs e"}},
		{"ids are compared byte by byte", rows{row("B"), row("a"), row("é")}, rows{row("b"), row("z")}, nil,
			[]string{"only_ours B", "only_ours a", "only_theirs b", "only_theirs z", "only_ours é"}},
		{"an id that begins another is another", rows{row("a")}, rows{row("a\x00")}, nil, []string{"only_ours a", "only_theirs a\x00"}},
		{"the names of what differs are in order", rows{row("a", "z", "1", "y", "1", "x", "1")}, rows{row("a", "x", "2", "y", "1", "z", "2")}, nil,
			[]string{"different a x,z"}},
		{"a field of one side differs", rows{row("a", "x", "1")}, rows{row("a", "y", "2")}, nil, []string{"different a x,y"}},
		{"no field is an empty field", rows{row("a", "x", "")}, rows{{ID: "a"}}, nil, nil},
		{"texts are compared exactly", rows{row("a", "x", "EUR")}, rows{row("a", "x", "eur")}, nil, []string{"different a x"}},
		{"no field is an amount unless it is named", rows{row("a", "amount", "1.0")}, rows{row("a", "amount", "1.00")}, nil, []string{"different a amount"}},
		{"amounts are compared by value", rows{row("a", "amount", "1.0")}, rows{row("a", "amount", "1.00")}, amounts, nil},
		{"amounts are exact", rows{row("a", "amount", "9007199254740993")}, rows{row("a", "amount", "9007199254740992")}, amounts, []string{"different a amount"}},
		{"no amount is not zero", rows{row("a", "amount", "0")}, rows{row("a")}, amounts, []string{"different a amount"}},
		{"a second row of theirs is a double charge", rows{row("a", "x", "1")}, rows{row("a", "x", "1"), row("a", "x", "1")}, nil, []string{"duplicate_theirs a"}},
		{"and so is a third", rows{row("a")}, rows{row("a"), row("a"), row("a")}, nil, []string{"duplicate_theirs a", "duplicate_theirs a"}},
		{"a second row of ours is a duplicate too", rows{row("a"), row("a"), row("b")}, rows{row("a"), row("b")}, nil, []string{"duplicate_ours a"}},
		{"duplicates are so on both sides", rows{row("a"), row("a")}, rows{row("a"), row("a")}, nil, []string{"duplicate_ours a", "duplicate_theirs a"}},
		{"a duplicate that nobody else has is both", nil, rows{row("a"), row("a")}, nil, []string{"only_theirs a", "duplicate_theirs a"}},
		{"the first rows are the ones compared", rows{row("a", "x", "1")}, rows{row("a", "x", "2"), row("a", "x", "1")}, nil,
			[]string{"different a x", "duplicate_theirs a"}},
		{"within the period nothing is pending", rows{at("a", "01T00:00"), at("b", "01T23:59")}, nil, day, []string{"only_ours a", "only_ours b"}},
		{"before and after it everything is", rows{at("a", "02T00:00")}, rows{at("b", "28T12:00")}, day, []string{"pending_ours a", "pending_theirs b"}},
		{"before it too", nil, rows{{ID: "b", Time: day.Since.Add(-1)}}, day, []string{"pending_theirs b"}},
		{"a row without a time is not pending", rows{row("a")}, nil, day, []string{"only_ours a"}},
		{"without a period nothing is pending", rows{{ID: "a", Time: time.Unix(-1e11, 0)}}, nil, nil, []string{"only_ours a"}},
		{"our rows may begin later", rows{at("a", "01T05:59"), at("b", "01T06:00")}, rows{at("c", "01T05:59")}, &ledger.Options{Since: day.Since, Until: day.Until, OursSince: day.Since.Add(6 * time.Hour)},
			[]string{"pending_ours a", "only_ours b", "only_theirs c"}},
		{"duplicates are never pending", rows{at("a", "02T00:00"), at("a", "02T00:00")}, nil, day, []string{"pending_ours a", "duplicate_ours a"}},
		{"a sorted list may have an id twice", rows{row("a"), row("a"), row("b")}, rows{row("a"), row("b"), row("b")}, presorted, []string{"duplicate_ours a", "duplicate_theirs b"}},
		{"rows without an id have no place in the order", rows{row("b"), nameless("a"), nameless("z"), row("c"), nameless("m")}, rows{row("b"), row("c")}, presorted,
			[]string{"unidentified a", "unidentified m", "unidentified z"}},
		{"differences are never pending", rows{{ID: "a", Time: day.Until, Fields: map[string]string{"x": "1"}}}, rows{row("a")}, day, []string{"different a x"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			got, sum := found(t, ledger.Of(c.ours...), ledger.Of(c.theirs...), c.options)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
			clean := true
			for _, d := range c.want {
				clean = clean && strings.HasPrefix(d, "pending")
			}
			if sum.Clean() != clean || !sum.Complete {
				t.Errorf("Clean = %v of %+v", sum.Clean(), sum)
			}
		})
	}
}

func TestDifferencesHaveTheirRows(t *testing.T) {
	t.Parallel()
	nameless := ledger.Entry{ID: "s k", Time: time.Unix(5, 7).UTC(), Record: "s k", Unknown: "in_progress", Unidentified: true}
	ours := []ledger.Entry{{ID: "a", Line: 1}, {ID: "b", Line: 2, Fields: map[string]string{"x": "1"}}, {ID: "b", Line: 3}, nameless}
	theirs := []ledger.Entry{{ID: "b", Line: 7}, {ID: "b", Line: 8}, {ID: "c", Line: 9}}
	want := []ledger.Difference{
		{Kind: ledger.KindOnlyOurs, ID: "a", Ours: ours[0]},
		{Kind: ledger.KindDifferent, ID: "b", Ours: ours[1], Theirs: theirs[0], Fields: []string{"x"}},
		{Kind: ledger.KindDuplicateOurs, ID: "b", Ours: ours[2]},
		{Kind: ledger.KindDuplicateTheirs, ID: "b", Theirs: theirs[1]},
		{Kind: ledger.KindOnlyTheirs, ID: "c", Theirs: theirs[2]},
		{Kind: ledger.KindUnknown, ID: "s k", Ours: nameless},
	}
	var got []ledger.Difference
	_, err := ledger.Compare(t.Context(), ledger.Of(ours...), ledger.Of(theirs...), ledger.Each(func(d ledger.Difference) error {
		got = append(got, d)
		return nil
	}), nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, %v\nwant %+v", got, err, want)
	}
}

// A sourceOf that breaks off after its rows.
func broken(err error, rows ...ledger.Entry) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
		yield(ledger.Entry{}, err)
	}
}

func TestComparisonsThatFailAreNotComplete(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	fine := ledger.Of(row("a"), row("b"), row("c"))
	for _, c := range []struct {
		rule         string
		ours, theirs ledger.Source
		presorted    bool
		is           error
		says         string
	}{
		{"a source is missing", fine, nil, false, nil, "missing"},
		{"our source breaks off", broken(lost, row("a")), fine, false, lost, "read ours: connection lost"},
		{"their source breaks off", fine, broken(lost, row("a"), row("b"), row("c")), false, lost, "read theirs: connection lost"},
		{"it does so at once", fine, broken(lost), false, lost, "read theirs: connection lost"},
		{"out of order", fine, ledger.Of(row("b"), row("a")), true, ledger.ErrOrder, `read theirs: row 2: out of order: "a" after "b"`},
		{"out of order, in a file", ledger.Of(row("b"), ledger.Entry{ID: "a\x1b", Line: 17}), fine, true, ledger.ErrOrder, `read ours: line 17: out of order: "a\x1b" after "b"`},
		{"long ids are cut", ledger.Of(row("b"+strings.Repeat("x", 1e5)), row("a")), fine, true, ledger.ErrOrder, `xx"…`},
		{"a row of theirs has no id", fine, ledger.Of(row("a"), ledger.Entry{ID: "x", Unidentified: true}), false, nil, "rows of ours agree with"},
		{"an id is empty", ledger.Of(row("")), fine, false, ledger.ErrMalformed, "row 1: malformed: no id"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			sum, err := ledger.Compare(t.Context(), c.ours, c.theirs, nil, &ledger.Options{Presorted: c.presorted})
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 500 {
				t.Errorf("Compare = %v, want %v that says %q", err, c.is, c.says)
			}
			if sum.Complete || sum.Clean() {
				t.Errorf("it is complete: %+v", sum)
			}
		})
	}
}

func TestEndOfContextEndsTheComparison(t *testing.T) {
	t.Parallel()
	same := func(rows int, each func(i int)) ledger.Source { // one id, again and again
		return func(yield func(ledger.Entry, error) bool) {
			for i := 0; i != rows; i++ {
				if each(i); !yield(ledger.Entry{ID: "a"}, nil) {
					return
				}
			}
		}
	}
	const endless = -1
	for _, c := range []struct {
		rule         string
		ours, theirs int
		read, found  int // when the context ends
	}{
		{"while ours is read", endless, 0, 100, 0},
		{"while theirs is read", 50, endless, 100, 0},
		{"while it is reported", 1000, 1000, 0, 100},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		read, found := 0, 0
		count := func(int) {
			if read++; read == c.read {
				cancel()
			}
		}
		sum, err := ledger.Compare(ctx, same(c.ours, count), same(c.theirs, count), ledger.Each(func(ledger.Difference) error {
			if found++; found == c.found {
				cancel()
			}
			return nil
		}), nil)
		if !errors.Is(err, context.Canceled) || sum.Complete || found != c.found {
			t.Errorf("%s: Compare = %+v, %v after %d differences", c.rule, sum, err, found)
		}
		cancel()
	}
}

// ending is a report that fails where it is told to.
type ending struct {
	add, end error
	ended    int
	with     error
}

func (e *ending) Add(ledger.Difference) error { return e.add }
func (e *ending) End(_ ledger.Summary, err error) error {
	e.ended, e.with = e.ended+1, err
	return e.end
}

func TestReportIsEndedOnce(t *testing.T) {
	t.Parallel()
	full, lost := errors.New("disk full"), errors.New("connection lost")
	for _, c := range []struct {
		rule       string
		report     ending
		theirs     ledger.Source
		want, with error
	}{
		{"after the last difference", ending{}, ledger.Of(), nil, nil},
		{"and may fail then", ending{end: full}, ledger.Of(), full, nil},
		{"when it could not take a difference", ending{add: full, end: errors.New("again")}, ledger.Of(), full, full},
		{"when a source fails", ending{end: full}, broken(lost), lost, lost},
	} {
		sum, err := ledger.Compare(t.Context(), ledger.Of(row("a")), c.theirs, &c.report, nil)
		if !errors.Is(err, c.want) || c.report.ended != 1 || !errors.Is(c.report.with, c.with) || sum.Complete != (c.want == nil) {
			t.Errorf("%s: Compare = %+v, %v; ended %d times with %v", c.rule, sum, err, c.report.ended, c.report.with)
		}
	}
}

// Sources may hold files and connections: they are told to stop whatever ends the comparison.
func TestSourcesAreStopped(t *testing.T) {
	t.Parallel()
	stopped := 0
	held := func(yield func(ledger.Entry, error) bool) {
		defer func() { stopped++ }()
		for _, id := range []string{"a", "b", "c"} {
			if !yield(ledger.Entry{ID: id}, nil) {
				return
			}
		}
	}
	if _, err := ledger.Compare(t.Context(), held, held, nil, nil); err != nil || stopped != 2 {
		t.Errorf("%d stopped at the end, %v", stopped, err)
	}
	if _, err := ledger.Compare(t.Context(), held, broken(errors.New("lost"), row("a")), nil, nil); err == nil || stopped != 3 {
		t.Errorf("%d stopped after an error, %v", stopped-2, err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = ledger.Compare(t.Context(), held, ledger.Of(), ledger.Each(func(ledger.Difference) error { panic("a report's bug") }), nil)
	}()
	if stopped != 4 {
		t.Errorf("%d stopped after a panic", stopped-3)
	}
}

func TestKindsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := ledger.KindOnlyOurs; k <= ledger.KindPendingTheirs; k++ {
		if seen[k.String()] || strings.Contains(k.String(), "(") {
			t.Errorf("%d is called %s", k, k)
		}
		seen[k.String()] = true
	}
	if got := ledger.Kind(99).String(); got != "kind(99)" {
		t.Error(got)
	}
}

// Each kind is counted by a number of its own, and only what is pending is nothing wrong.
func TestOnlyWhatIsPendingIsClean(t *testing.T) {
	t.Parallel()
	all := 0
	for k := range new(ledger.Summary).Counts() {
		all++
		s := ledger.Summary{Complete: true}
		for i := range reflect.TypeFor[ledger.Summary]().NumField() {
			if reflect.TypeFor[ledger.Summary]().Field(i).Tag.Get("json") == k.String() {
				reflect.ValueOf(&s).Elem().Field(i).SetInt(1)
			}
		}
		for other, n := range s.Counts() {
			if (n == 1) != (other == k) {
				t.Errorf("with one %s there are %d %s", k, n, other)
			}
		}
		if got, want := s.Clean(), strings.HasPrefix(k.String(), "pending"); got != want {
			t.Errorf("with one %s Clean = %v", k, got)
		}
	}
	if all != 10 {
		t.Errorf("there are %d kinds", all)
	}
}
