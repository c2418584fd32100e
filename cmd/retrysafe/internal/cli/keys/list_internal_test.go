package keys

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"!", "_w", "gICAgICAgICAgAE"} {
		if ref, ok := parseCursor(text); ok {
			t.Errorf("%q is taken for %q", text, fmt.Sprint(ref))
		}
	}
}

// With --hash no line has a key, in whichever form it is written.
func TestTailHidesKeys(t *testing.T) {
	t.Parallel()
	r := adminwire.View{Record: retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: "a-key"}, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion}}
	for _, hashed := range []bool{false, true} {
		for _, form := range []string{"text", "json"} {
			var out strings.Builder
			f := follower{hashed: hashed, format: command.NewFormat(new(cobra.Command), form)}
			if err := f.write(&command.Env{Streams: terminal.Streams{Out: &out}}, &r); err != nil || strings.Contains(out.String(), "a-key") == hashed {
				t.Errorf("hashed %v, %s: %s, %v", hashed, form, out.String(), err)
			}
			if hashed && !strings.Contains(out.String(), retrysafe.HashKey("a-key")) {
				t.Errorf("the hash is missing: %s", out.String())
			}
		}
	}
}
