package keys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/operator"
)

// How a move ended decides whether a script may start the programs again: after the cut the
// first store does not serve any more.
func TestEndOfAMoveIsSaid(t *testing.T) {
	t.Parallel()
	const inService = "the first store stays in service"
	from, to := &stores.Location{URL: "sqlite:from.db"}, &stores.Location{URL: "sqlite:to.db", Repeat: " --store sqlite:to.db"}
	for _, c := range []struct {
		err  error
		code exit.Code
		says string
	}{
		{move.ErrUnsure, exit.Unsure, "run the same move again"},
		{move.ErrNotOpened, exit.Unsure, "run the same move again, which opens it"},
		{fmt.Errorf("%w: %w", move.ErrUnsure, storemove.ErrOvertaken), exit.Unsure, "it is unknown whether the source is closed"},
		{fmt.Errorf("%w: %w", move.ErrNotOpened, storemove.ErrFilling), exit.Unsure, "but it is not open yet"},
		{fmt.Errorf("%w: %w: the line was cut", move.ErrUnseen, move.ErrDestination), exit.Unsure, "it is unknown whether the destination is open"},
		{move.ErrKind, exit.No, "not moved: "},
		{fmt.Errorf("source: sqlitestore: follow: %w to a.db", storemove.ErrMoved), exit.No, "retrysafe: already moved: this store was moved to a.db"},
		{fmt.Errorf("%w: fill: %w to a.db", move.ErrDestination, storemove.ErrMoved), exit.No, "not moved: sqlite:to.db: this store was moved to a.db"},
		{fmt.Errorf("%w: %w (records: 3)", move.ErrDestination, storemove.ErrNotEmpty), exit.No, "not moved: sqlite:to.db: this store holds records already; move into an empty one (records: 3); retrysafe keys list --store sqlite:to.db shows its keys; name another file"},
		{storemove.ErrLeaving, exit.No, "not moved: "},
		{storemove.ErrUndelivered, exit.No, "not moved: "},
		{storemove.ErrOvertaken, exit.No, "not moved: "},
		{storemove.ErrFilling, exit.No, "not moved: "},
		{errors.New("the line was cut"), exit.Store, inService + ": the line was cut; the same command again starts over"},
	} {
		e := exit.Of(moveError(fmt.Errorf("move: %w", c.err), to), "")
		text := strings.Join(e.Lines(), "\n")
		if e.Code != c.code || !strings.Contains(text, c.says) || c.code != exit.Store && strings.Contains(text, inService) {
			t.Errorf("%v: exit code %d, %s", c.err, e.Code, text)
		}
	}
	r := &move.Report{Records: 3, States: map[retrysafe.State]int{retrysafe.StateCompleted: 2, retrysafe.StateUnknown: 1}, Again: 5, Cut: 7 * time.Millisecond, Took: time.Second}
	for _, c := range []struct {
		dryRun, finished bool
		want             string
	}{
		{true, false, "3 keys could move from sqlite:from.db to sqlite:to.db (2 completed, 1 unknown)\n"},
		{false, true, "an earlier run had moved all keys; sqlite:to.db is open now, and sqlite:from.db is closed\n"},
		{false, false, "3 keys moved from sqlite:from.db to sqlite:to.db (2 completed, 1 unknown), 5 of them again, in 1s; no program could write for 7ms\n" +
			"sqlite:from.db is closed: point every configuration to sqlite:to.db\n"},
	} {
		r.Finished = c.finished
		if got := moveText(r, from, to, c.dryRun); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		j := newMoveJSON(r, c.dryRun)
		if j.DryRun != c.dryRun || j.Finished != c.finished || j.Records != 3 || j.Again != 5 || j.States["unknown"] != 1 || j.Cut != 0.007 || j.Took != 1 {
			t.Errorf("for scripts it is %+v", j)
		}
	}
}

// ended are actions that end as they are told.
type ended struct {
	actions
	entry operator.Entry
	err   error
}

func (e ended) Apply(_ context.Context, b operator.Batch, _ *adminwire.Counted) (operator.Entry, error) {
	b.Progress(operator.BatchReport{Counted: 9, Done: 4})
	return e.entry, e.err
}

func (e ended) Quarantine(context.Context, operator.Suspects) (operator.Entry, error) {
	return e.entry, e.err
}

// A script learns from the exit code whether all keys were changed, and a person which were
// not.
func TestEndOfABatchIsSaid(t *testing.T) {
	t.Parallel()
	place := &stores.Session{Location: &stores.Location{URL: "sqlite:keys.db", Repeat: " --store sqlite:keys.db"}}
	denied := exit.Errorf(exit.No, "the token may not")
	for _, c := range []struct {
		name   string
		counts *operator.BatchReport
		err    error
		format string
		code   exit.Code
		says   []string
	}{
		{"all", &operator.BatchReport{Counted: 9, Done: 9}, nil, "text", exit.OK, []string{"released: 9 of 9 keys", "action ID by anna"}},
		{"some had changed", &operator.BatchReport{Counted: 9, Done: 7, Changed: 2}, nil, "text", exit.OK, []string{"7 of 9", "2 keys have changed since the count"}},
		{"some were refused", &operator.BatchReport{Counted: 9, Done: 8, Refused: 1}, nil, "text", exit.No, []string{"8 of 9", "1 key was refused", "keys audit --store sqlite:keys.db --batch ID"}},
		{"refused, for a script", &operator.BatchReport{Counted: 9, Refused: 9}, nil, "json", exit.No, []string{`"refused":9`, "9 keys were refused"}},
		{"invalid", nil, operator.ErrInvalid, "text", exit.Usage, nil},
		{"mismatch", nil, retrysafe.ErrMismatch, "text", exit.Usage, nil},
		{"denied", nil, fmt.Errorf("apply: %w", denied), "text", exit.No, []string{"the token may not"}},
		{"cut", nil, errors.New("the line was cut"), "text", exit.Unsure, []string{"interrupted after 4 keys", "--by 'anna o'", "--id ID", "--since 2026-03-01T00:00:00", "--until 2026-03-02T00:00:00"}},
		{"interrupted", nil, context.Canceled, "text", exit.Interrupted, []string{"interrupted after 4 keys", "--id ID"}},
	} {
		var out, said strings.Builder
		env := testEnv(&out, &said)
		b := bulk{bulkFlags: &bulkFlags{selectFlags: &selectFlags{}}, flags: &action.Flags{By: "anna o", Format: command.NewFormat(new(cobra.Command), c.format)}}
		b.batch = operator.Batch{ID: "ID", Verb: "release"}
		b.batch.Filter.Since, b.batch.Filter.Until = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		s := &session{place: place, actions: ended{entry: operator.Entry{ID: "ID", By: "anna", Verb: "release", Outcome: operator.StatusDone, Counts: c.counts}, err: c.err}}
		checkEnd(t, c.name, b.apply(t.Context(), env, s, &adminwire.Counted{Count: 9}), c.code, out.String(), c.says)
	}
}

// checkEnd fails the test unless a command has ended with this code and has said all that.
func checkEnd(t *testing.T, name string, err error, code exit.Code, out string, says []string) {
	t.Helper()
	got := exit.OK
	if err != nil {
		e := exit.Of(err, "")
		got = e.Code
		out += strings.Join(e.Lines(), "\n")
	}
	if got != code {
		t.Errorf("%s: exit code %d, want %d\n%s", name, got, code, out)
	}
	for _, text := range says {
		if !strings.Contains(out, text) {
			t.Errorf("%s: it does not say %q:\n%s", name, text, out)
		}
	}
}

// A quarantine that keys have escaped says that it has to be run again.
func TestEndOfAQuarantineIsSaid(t *testing.T) {
	t.Parallel()
	denied := exit.Errorf(exit.No, "the token may not")
	for _, c := range []struct {
		name   string
		report *operator.Report
		err    error
		code   exit.Code
		says   []string
	}{
		{"all", &operator.Report{Looked: 9, Quarantined: 9}, nil, exit.OK, []string{"set aside 9 of 9"}},
		{"traffic", &operator.Report{Looked: 9, Quarantined: 7, Moved: 2, Unreadable: 3}, nil, exit.OK, []string{"set aside 7 of 9", "3 cannot be read", "2 keys changed meanwhile", "run it again"}},
		{"invalid", nil, operator.ErrInvalid, exit.Usage, nil},
		{"mismatch", nil, retrysafe.ErrMismatch, exit.Usage, nil},
		{"denied", nil, fmt.Errorf("apply: %w", denied), exit.No, []string{"the token may not"}},
		{"cut", nil, errors.New("the line was cut"), exit.Unsure, []string{"continue with the same command and: --by 'anna o' --id night"}},
	} {
		var out, said strings.Builder
		env := testEnv(&out, &said)
		q := quarantine{flags: action.Flags{By: "anna o", ID: "night", Format: command.NewFormat(new(cobra.Command), "text")}}
		s := &session{actions: ended{entry: operator.Entry{ID: "night", By: "anna", Verb: "quarantine", Outcome: operator.StatusDone, Report: c.report}, err: c.err}}
		checkEnd(t, c.name, q.act(t.Context(), env, s), c.code, out.String(), c.says)
	}
}

// A record that a newer program has written is not taken for one that this program knows.
func TestNewerRecordsAreUnreadable(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint8]string{0: "unreadable", retrysafe.RecordVersion: "completed", retrysafe.RecordVersion + 1: "unreadable"} {
		r := retrysafe.Record{State: retrysafe.StateCompleted, Version: version}
		if got := stateText(&r); got != want {
			t.Errorf("a record of version %d is %s, want %s", version, got, want)
		}
	}
}

// A change of many keys is the one that the command line asks for.
func TestBatchIsWhatTheFlagsSay(t *testing.T) {
	t.Parallel()
	var out, said strings.Builder
	b := bulk{bulkFlags: &bulkFlags{selectFlags: &selectFlags{operation: "POST /a", states: []string{"unknown"}}, rate: 50}, flags: &action.Flags{By: "anna", Why: "case 42", ID: "night"}}
	b.batch.Filter.Scope = "tenant-a"
	if err := b.parse(testEnv(&out, &said)); err != nil {
		t.Fatal(err)
	}
	if got := b.batch; got.ID != "night" || got.By != "anna" || got.Why != "case 42" || got.Rate != 50 || got.Filter.Scope != "tenant-a" || got.Filter.Operation != "POST /a" || len(got.Filter.States) != 1 {
		t.Errorf("it is %+v", got)
	}
}
