package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// answerFlags are the answer that retries get from now on.
type answerFlags struct {
	status   int
	headers  []string
	body     string
	bodyFile string
	provider string
}

func givesAnswer(cmd *cobra.Command) *answerFlags {
	f := new(answerFlags)
	cmd.Flags().IntVar(&f.status, "status", 0, "HTTP status of the answer (required)")
	cmd.Flags().StringArrayVar(&f.headers, "header", nil, "header of the answer, as 'Name: value'; may be repeated")
	cmd.Flags().StringVar(&f.body, "body", "", "body of the answer")
	cmd.Flags().StringVar(&f.bodyFile, "body-file", "", "`FILE` with the body of the answer; - is the standard input")
	cmd.Flags().StringVar(&f.provider, "provider-ref", "", "the other side's own name for the effect")
	cmd.MarkFlagsMutuallyExclusive("body", "body-file")
	return f
}

// maxAnswer bounds a body that somebody gives as an answer.
const maxAnswer = 16 << 20

// result returns the answer that the flags make.
func (f *answerFlags) result(p *program) (retrysafe.Result, error) {
	if f.status < 200 || f.status > 599 {
		return retrysafe.Result{}, misused("--status is missing, or not between 200 and 599").hinted("it is the status that retries get, for example --status 201")
	}
	r := retrysafe.Result{Status: f.status, Body: []byte(f.body)}
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		why := badHeader(name, value)
		if !ok {
			why = "it has no colon"
		}
		if why != "" {
			return r, misused("--header %q: %s", line, why).hinted("it is written as 'Content-Type: application/json'")
		}
		if r.Header == nil {
			r.Header = map[string][]string{}
		}
		r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
	}
	switch f.bodyFile {
	case "":
	case "-":
		return f.read(r, p.stdin)
	default:
		file, err := os.Open(f.bodyFile)
		if err != nil {
			return r, misused("--body-file: %v", err)
		}
		defer file.Close()
		return f.read(r, file)
	}
	return r, nil
}

func (f *answerFlags) read(r retrysafe.Result, from io.Reader) (_ retrysafe.Result, err error) {
	if r.Body, err = io.ReadAll(io.LimitReader(from, maxAnswer+1)); err != nil {
		return r, misused("--body-file: %v", err)
	}
	if len(r.Body) > maxAnswer {
		return r, misused("--body-file: the body is over %s bytes", grouped(maxAnswer))
	}
	return r, nil
}

// badHeader says what is wrong with a header of an answer, or nothing. Those that
// belong to one exchange, or to one session, are never replayed.
func badHeader(name, value string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) {
		return "that is no name of a header"
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "control characters are not allowed in it"
	}
	if headerkind.IsPerExchange(name) {
		return "it belongs to one exchange and is never replayed"
	}
	return ""
}

// preview shows the answer that is about to be stored.
func preview(r *retrysafe.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %d %s", r.Status, http.StatusText(r.Status))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&b, "\n  %s: %s", visible(name), visible(value))
		}
	}
	if len(r.Body) > 0 {
		fmt.Fprintf(&b, "\n  %s", clipped(visible(string(r.Body)), 300))
	}
	return b.String()
}

// answering is a command that gives an unknown outcome its answer.
func (p *program) answering(stores *storeFlags, do func(*operator.Desk, context.Context, operator.Action, retrysafe.Result) (operator.Entry, error), name, will string, cmd *cobra.Command) *cobra.Command {
	cmd.Use = name + " SCOPE KEY"
	cmd.Args = exactly("SCOPE", "KEY")
	flags, answer := acts(cmd, true), givesAnswer(cmd)
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		result, err := answer.result(p)
		if err != nil {
			return err
		}
		return p.act(cmd, stores, flags, args, verb{
			name: name, will: will + "\n" + preview(&result), provider: answer.provider, more: []string{string(storekit.AppendResult(nil, &result))},
			do: func(ctx context.Context, d *desk, a operator.Action) (operator.Entry, error) {
				return do(d.Desk, ctx, a, result)
			},
		})
	})
	return cmd
}
