// Package verify is the command "retrysafe verify": it tells from the outside whether an
// API keeps the contract of idempotency keys.
package verify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/conform"
)

// options are what the flags ask for.
type options struct {
	conform.Options

	request, body, data, otherBody string
	headers, otherHeaders          []string
	slow, fail, limit, crash       []string
	profile, openapi, ca           string
	restart, storeDown, storeUp    string
	dryRun, list                   bool
	output                         string
	format, failOn                 *command.Choice
}

// Command returns the command.
func Command(env *command.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "verify URL",
		Short: "Tell from the outside whether an API is safe to retry",
		Long: `Sends requests to an API, in any language and from any maker, and tells whether it keeps
the contract of idempotency keys: what a retry gets, what a different request under the
same key gets, what happens in flight, in a race, after a disconnect, after a failure. It
is a black box and shares no code with the gateway or the library.

The requests have real effects: give it an environment for tests. A host that is neither
on this machine nor in a private network needs --i-own-this. --dry-run lists every request
and sends none; a run never sends more than that. All its keys begin with conform-, and no
redirect is followed.

More can be tested the more it is told: --effects-url counts effects instead of inferring
them from answers, --other-header is a second caller, and --slow, --fail, --limit and
--crash are headers by which a test environment lets a handler take a second, answer with
a 5xx or 429, or die. What is not tested says what it needs.

The exit code is 0 if nothing is violated, 1 if something is, 2 if the command line is
wrong or the API cannot be reached, and 5 if a check could not be carried out, as when the
request itself does not succeed.`,
		Example: `  # an operation of a service on this machine
  retrysafe verify http://127.0.0.1:8080/payments --data '{"amount": 1200}' --header 'Authorization: Bearer a'
  # with a second caller, and a URL that counts effects
  retrysafe verify http://127.0.0.1:8080/payments --body order.json --header 'Authorization: Bearer a' --other-header 'Authorization: Bearer b' --effects-url 'http://127.0.0.1:8080/ledger?key={key}'
  # what it would send
  retrysafe verify http://127.0.0.1:8080/payments --data '{"amount": 1200}' --dry-run
  # every state-changing operation of an OpenAPI file, as a page to show around
  retrysafe verify http://127.0.0.1:8080 --openapi openapi.yaml --format html --output verify.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.list {
				return command.Args()(cmd, args)
			}
			return command.Args("URL")(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.request, "request", "", "the operation, as 'POST /payments' (default: POST to the path of URL)")
	flags.StringVar(&o.body, "body", "", "`FILE` with its body, or - for standard input")
	flags.StringVar(&o.data, "data", "", "its body")
	flags.StringArrayVar(&o.headers, "header", nil, "a header of each request, as 'Name: value' (repeatable)")
	flags.StringVar(&o.otherBody, "other-body", "", "`FILE` with a different body (default: made from the body)")
	flags.StringVar(&o.OtherPath, "other-path", "", "another endpoint that takes the same body")
	flags.StringArrayVar(&o.otherHeaders, "other-header", nil, "a header with the credentials of a second caller (repeatable)")
	flags.StringVar(&o.profile, "profile", "ietf", "ietf, stripe, or a YAML `FILE` with rules of your own")
	flags.StringVar(&o.Effects.URL, "effects-url", "", "`URL` that says how many effects there were; {key} in it is the key")
	flags.StringVar(&o.Effects.Pointer, "effects-pointer", "", "JSON pointer to the number or list there; without a URL, to what names the effect in an answer, as /id")
	flags.StringVar(&o.Effects.Header, "effects-header", "", "response header in place of the pointer")
	flags.StringArrayVar(&o.slow, "slow", nil, "a header that makes the API take a second or more")
	flags.StringArrayVar(&o.fail, "fail", nil, "a header that makes it answer with a 5xx before any effect")
	flags.StringArrayVar(&o.limit, "limit", nil, "a header that makes it answer 429")
	flags.StringArrayVar(&o.crash, "crash", nil, "a header that makes it die after its effect")
	flags.StringVar(&o.Webhooks, "webhooks", "", "`ADDRESS` to listen on for webhooks of the API")
	flags.StringVar(&o.restart, "restart", "", "`COMMAND` that restarts the API")
	flags.StringVar(&o.storeDown, "store-down", "", "`COMMAND` that makes the store of its keys unavailable")
	flags.StringVar(&o.storeUp, "store-up", "", "`COMMAND` that makes it available again")
	flags.StringVar(&o.openapi, "openapi", "", "OpenAPI `FILE` whose state-changing operations are all tried")
	flags.StringSliceVar(&o.Only, "only", nil, "checks to run, as replay or replay/bytes")
	flags.IntVar(&o.Racers, "racers", 8, "how many requests race")
	flags.Float64Var(&o.Rate, "rate", 20, "requests in a second at most")
	flags.DurationVar(&o.Timeout, "timeout", 30*time.Second, "how long one answer may take")
	flags.DurationVar(&o.Patience, "patience", 10*time.Second, "how long a request may be in flight")
	flags.StringVar(&o.ca, "ca", "", "`FILE` with the certificates to trust, for https")
	flags.StringVar(&o.RunID, "run-id", "", "part of all keys (default: a random one)")
	flags.BoolVar(&o.Own, "i-own-this", false, "verify a host that is not on this machine or in a private network")
	flags.BoolVar(&o.dryRun, "dry-run", false, "list every request and send none")
	flags.BoolVar(&o.list, "list", false, "list the checks")
	flags.StringVar(&o.output, "output", "", "write the report to `FILE`")
	o.failOn = command.NewChoice(cmd, "fail-on", "severity from which on a check that does not hold is exit code 1", "major", "critical", "minor")
	o.format = command.NewFormat(cmd, "text", "json", "junit", "html")
	command.Complete(cmd, "profile", "ietf", "stripe")
	cmd.MarkFlagsMutuallyExclusive("body", "data")
	cmd.MarkFlagsRequiredTogether("store-down", "store-up")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		if o.list {
			return listChecks(env)
		}
		if err := o.read(env, args[0]); err != nil {
			return err
		}
		if o.dryRun {
			return o.plan(env.Out)
		}
		return o.run(cmd.Context(), env)
	})
	return cmd
}

func listChecks(env *command.Env) error {
	t := terminal.NewTable(env.Out, false, "CHECK", "SEVERITY", "FROM", "REQUIREMENT")
	for _, c := range conform.Checks() {
		t.Add(c.Check, c.Severity, c.Clause, c.Requirement)
	}
	return t.Flush()
}

// plan lists every request.
func (o *options) plan(w io.Writer) error {
	all, err := conform.Plan(&o.Options)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	requests := 0
	for _, p := range all {
		requests += p.Times
		times := ""
		if p.Times > 1 {
			times = fmt.Sprintf(", up to %d times", p.Times)
		}
		if _, err := fmt.Fprintf(w, "%s: %s%s\n", printable.Text(p.Check), p.What, times); err != nil {
			return err
		}
		for line := range strings.Lines(p.Sent) {
			if _, err := fmt.Fprintf(w, "  > %s\n", printable.Text(strings.TrimRight(line, "\n"))); err != nil {
				return err
			}
		}
	}
	_, err = fmt.Fprintf(w, "\n%s at most; nothing was sent\n", terminal.Count(requests, "request", "requests"))
	return err
}

// run verifies and reports.
func (o *options) run(ctx context.Context, env *command.Env) error {
	if o.output != "" {
		if _, err := os.Stat(filepath.Dir(o.output)); err != nil { // now, and not after the run
			return exit.Usagef("%v", err)
		}
	}
	plan, err := conform.Plan(&o.Options)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	checks := map[string]bool{}
	for _, p := range plan {
		checks[p.Check] = true
	}
	progress, began, done := env.Progress(), time.Now(), 0
	o.OnResult = func(r *conform.Result) {
		if checks[r.Check] {
			done++
		}
		progress.ShowPart(done, len(checks), "checks: "+printable.Text(r.Check), began)
	}
	report, err := conform.Run(ctx, &o.Options)
	progress.End()
	switch {
	case ctx.Err() != nil:
		return exit.Errorf(exit.Failed, "not all was verified: %v", ctx.Err())
	case err != nil:
		return exit.Usagef("%v", err)
	}
	if err := o.report(env, report); err != nil {
		return exit.Errorf(exit.Failed, "the report was not written: %v", err)
	}
	switch {
	case report.Fails(o.failOn.String()):
		return exit.Silent(exit.No)
	case slices.ContainsFunc(report.Results, func(r conform.Result) bool { return r.Verdict == "set-up failed" }):
		return exit.Silent(exit.Failed)
	}
	return nil
}

// report writes the report to where it was asked for.
func (o *options) report(env *command.Env, r *conform.Report) error {
	format := o.format.String()
	if o.output == "" {
		if format == "text" && terminal.IsTerminal(env.Out) && env.Getenv("NO_COLOR") == "" {
			format = "ansi"
		}
		return write(env.Out, r, format)
	}
	file, err := os.Create(o.output)
	if err != nil {
		return err
	}
	if err := write(file, r, format); err != nil {
		_ = file.Close() // the first error says more
		return err
	}
	return file.Close()
}

// write writes a report. JSON is escaped as all commands do it.
func write(w io.Writer, r *conform.Report, format string) error {
	if format != "json" {
		return r.Write(w, format)
	}
	var b bytes.Buffer
	if err := r.Write(&b, format); err != nil {
		return err
	}
	_, err := w.Write(printable.JSON(b.Bytes()))
	return err
}
