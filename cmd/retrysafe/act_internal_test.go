package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

// Who cannot be told how an action ended is told how to find out.
func TestUnsureActionsSayHowToFindOut(t *testing.T) {
	t.Parallel()
	p := &program{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)}
	flags := &actFlags{by: "anna o'hara", revision: 17, format: &choice{value: "text"}}
	err := p.report(flags, acted{what: "t k", id: "ABC"}, operator.Entry{}, fmt.Errorf("release: %w", errors.New("the line was cut")))
	f := failureOf(err, new(cobra.Command))
	if f.code != exitUnsure || !strings.HasSuffix(f.lines()[0], `with the same line and: --by 'anna o'\''hara' --revision 17 --id ABC`) {
		t.Errorf("%d %q", f.code, f.lines())
	}
	err = p.report(flags, acted{id: "ABC"}, operator.Entry{}, context.Canceled)
	if f := failureOf(err, new(cobra.Command)); f.code != exitInterrupted || !strings.Contains(f.lines()[0], "--id ABC") {
		t.Errorf("%d %q", f.code, f.lines())
	}
}
