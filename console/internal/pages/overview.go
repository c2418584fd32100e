package pages

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

const (
	// maxCounted is the default of Sources.Counted.
	maxCounted = 100_000
	// maxRunning bounds how many records in flight are looked at for the longest.
	maxRunning = 2000
	shownRuns  = 8
)

// groupsFound are the groups that need a person.
type groupsFound struct {
	All []operator.Group
	// Whole says that every record was counted.
	Whole bool
}

func (p *Pages) readGroups(ctx context.Context) (groupsFound, error) {
	all, whole, err := p.Service.GroupsUpTo(ctx, operator.Filter{}, cmp.Or(p.Counted, maxCounted))
	return groupsFound{all, whole}, err
}

// runningFound are the records in flight that have run the longest.
type runningFound struct {
	Longest []retrysafe.Record
	// Count is how many were looked at, and More says that there are others.
	Count int
	More  bool
}

func (p *Pages) readRunning(ctx context.Context) (runningFound, error) {
	page, err := p.Service.List(ctx, operator.Filter{States: []retrysafe.State{retrysafe.StateInProgress}, Limit: maxRunning})
	if err != nil {
		return runningFound{}, err
	}
	all := slices.DeleteFunc(page.Records, func(r retrysafe.Record) bool { return !r.Readable() })
	slices.SortFunc(all, func(a, b retrysafe.Record) int { return a.CreatedAt.Compare(b.CreatedAt) })
	found := runningFound{Count: len(all), More: page.More}
	for _, r := range all[:min(shownRuns, len(all))] {
		r.Request, r.Checkpoint, r.Result = nil, retrysafe.Checkpoint{}, nil // a snapshot holds little memory
		found.Longest = append(found.Longest, r)
	}
	return found, nil
}

// overviewData is what the overview shows.
type overviewData struct {
	Ready   bool // the groups were counted at least once
	Stale   string
	Problem string
	Groups  []groupRow
	More    int // groups that are not shown
	Needs   string
	AtLeast bool
	Checks  []Check
	Chart   *chart
	Today   *Today
	Running []keyRow
	RunInfo string
	Depth   *depthView
}

// A groupRow is a group on a page.
type groupRow struct {
	State, StateText, Operation, Reason, Status string
	Disputed                                    bool
	Count, Dead                                 int
	Oldest                                      moment
	Age                                         string
	Next                                        string // what to do next
	URL, BatchURL                               string
}

func (p *Pages) overview(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	p.groups.begin()
	d := overviewData{Checks: p.checks(ctx), Depth: p.depth(ctx)}
	groups := p.groups.get(ctx)
	d.fillGroups(p, &groups)
	// To count the groups is to ask for what is due, by which a store may learn where
	// records in flight are: before that a list of them may read the whole store.
	var running taken[runningFound]
	if !groups.At.IsZero() {
		running = p.running.get(ctx)
	}
	for i := range running.Value.Longest {
		d.Running = append(d.Running, p.keyRow(&running.Value.Longest[i]))
	}
	d.RunInfo = runInfo(&running)
	if p.Facts.LastHour != nil {
		d.Chart = newChart(p.Facts.LastHour())
	}
	if p.Facts.Today != nil {
		today := p.Facts.Today()
		d.Today = &today
	}
	p.show(w, r, http.StatusOK, "overview", view{Title: "Overview", Page: "overview", Data: d})
}

const shownGroups = 20

func (d *overviewData) fillGroups(p *Pages, t *taken[groupsFound]) {
	d.Ready = !t.At.IsZero() && (t.Err == nil || len(t.Value.All) > 0)
	if t.Err != nil {
		d.Problem = "The log of this process has the reason."
	}
	if age := t.Age(); d.Ready && age > 5*time.Second {
		d.Stale = "as of " + span(age) + " ago"
	}
	total := 0
	for i := range t.Value.All {
		g := &t.Value.All[i]
		total += g.Count
		if len(d.Groups) < shownGroups {
			d.Groups = append(d.Groups, p.groupRow(g, t.At))
		}
	}
	d.More = len(t.Value.All) - len(d.Groups)
	d.AtLeast = !t.Value.Whole
	d.Needs = count(total, "key needs you", "keys need you")
	if d.AtLeast {
		d.Needs = "About " + number(total) + " keys or more need you"
	}
}

func (p *Pages) groupRow(g *operator.Group, read time.Time) groupRow {
	q := url.Values{"state": {g.State.String()}}
	set(q, "operation", g.Operation)
	set(q, "reason", g.Reason)
	if g.Status != 0 {
		q.Set("status", strconv.Itoa(g.Status))
	}
	row := groupRow{
		State: g.State.String(), StateText: stateName(g.State), Operation: visible(g.Operation), Reason: visible(g.Reason), Disputed: g.Disputed, Count: g.Count, Dead: g.Dead,
		Age: span(g.Age), Oldest: when(g.Oldest, read),
	}
	if g.Status != 0 {
		row.Status = strconv.Itoa(g.Status)
	}
	switch {
	case g.Disputed:
		row.Next = "Evidence contradicts the records. Settle them one by one: look for two effects at the provider."
	case g.State != retrysafe.StateUnknown:
		q.Set("due", "1")
		row.Next = "Their time has run out and no sweeper has settled them. Check that a sweeper runs."
	case g.Dead == g.Count:
		row.Next = "No resolver is asked again. Find out at the provider whether they happened, then settle them together."
	case !p.lookedInto(g.Operation):
		row.Next = "No resolver or webhook of this process is about them: an operator has to settle them. Look at the provider, then settle them together."
	default:
		row.Next = "Resolvers are asked about them. If none runs, look at the provider and settle them together."
	}
	row.URL = p.link("/keys", q)
	if !g.Disputed && g.State == retrysafe.StateUnknown {
		row.BatchURL = p.link("/keys/batch", q)
	}
	return row
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func runInfo(t *taken[runningFound]) string {
	switch {
	case t.At.IsZero():
		return "Being read."
	case t.Err != nil:
		return "Not known: the store did not list them."
	case t.Value.More:
		return "The longest of the first " + number(t.Value.Count) + " that the store lists."
	case t.Value.Count == 0:
		return "Nothing runs at this moment."
	default:
		return count(t.Value.Count, "operation runs", "operations run") + "."
	}
}

// checks returns the health of all parts, what is wrong first.
func (p *Pages) checks(ctx context.Context) []Check {
	var all []Check
	if p.Facts.Checks != nil {
		all = slices.Clone(p.Facts.Checks(ctx))
	}
	for i := range all {
		all[i].Name, all[i].Text = visible(all[i].Name), visible(all[i].Text)
		if !slices.Contains([]string{"ok", "warn", "bad"}, all[i].Level) {
			all[i].Level = "none"
		}
	}
	rank := map[string]int{"bad": 0, "warn": 1, "none": 2, "ok": 3}
	slices.SortStableFunc(all, func(a, b Check) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return all
}
