package action_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// If it is not known how an action ended, the message has the command that finds out.
func TestUnsureActionsSayHowToFindOut(t *testing.T) {
	t.Parallel()
	env := &command.Env{Streams: terminal.Streams{Out: new(bytes.Buffer), Err: new(bytes.Buffer)}}
	flags := action.AddFlags(new(cobra.Command), false)
	flags.By, flags.Revision = "anna o'hara", 17
	err := action.Report(env, flags, action.Target{Name: "t k", ID: "ABC"}, operator.Entry{}, fmt.Errorf("release: %w", errors.New("the line was cut")))
	e := exit.Of(err, "")
	if e.Code != exit.Unsure || !strings.HasSuffix(e.Lines()[0], `with the same command and: --by 'anna o'\''hara' --revision 17 --id ABC`) {
		t.Errorf("%d %q", e.Code, e.Lines())
	}
	out := new(bytes.Buffer)
	env.Out = out
	gone := operator.Entry{ID: "ABC", By: "anna", Verb: "drop letter", Outcome: operator.StatusGone, Text: "it was delivered"}
	if err := action.Report(env, flags, action.Target{Name: "message 7"}, gone, nil); err != nil || !strings.Contains(out.String(), "there is nothing left to act on: it was delivered") {
		t.Errorf("%v: %s", err, out)
	}
	err = action.Report(env, flags, action.Target{ID: "ABC"}, operator.Entry{}, context.Canceled)
	if e := exit.Of(err, ""); e.Code != exit.Interrupted || !strings.Contains(e.Lines()[0], "--id ABC") {
		t.Errorf("%d %q", e.Code, e.Lines())
	}
}
