package keys

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/operator"
)

// answerFlags are the answer that retries get from now on.
type answerFlags struct {
	status      int
	headers     []string
	body        string
	bodyFile    string
	noBody      bool
	providerRef string
}

func addAnswerFlags(cmd *cobra.Command) *answerFlags {
	f := new(answerFlags)
	cmd.Flags().IntVar(&f.status, "status", 0, "HTTP status of the answer (required)")
	cmd.Flags().StringArrayVar(&f.headers, "header", nil, "header of the answer, as 'Name: value'; may be repeated")
	cmd.Flags().StringVar(&f.body, "body", "", "body of the answer")
	cmd.Flags().StringVar(&f.bodyFile, "body-file", "", "`FILE` with the body of the answer; - is the standard input")
	cmd.Flags().BoolVar(&f.noBody, "no-body", false, "the answer has no body, although it is a success other than 204")
	cmd.Flags().StringVar(&f.providerRef, "provider-ref", "", "the other side's own name for the effect")
	cmd.MarkFlagsMutuallyExclusive("body", "body-file", "no-body")
	return f
}

// maxBody bounds the body of an answer.
const maxBody = 16 << 20

// result returns the answer that the flags describe.
func (f *answerFlags) result(env *command.Env) (retrysafe.Result, error) {
	if f.status < 200 || f.status > 599 {
		return retrysafe.Result{}, exit.Usagef("--status is missing, or not between 200 and 599").Hintf("it is the status that retries get, for example --status 201")
	}
	header, err := f.header()
	if err != nil {
		return retrysafe.Result{}, err
	}
	body := []byte(f.body)
	switch f.bodyFile {
	case "":
	case "-":
		body, err = readBody(env.In)
	default:
		file, openErr := os.Open(f.bodyFile)
		if openErr != nil {
			return retrysafe.Result{}, exit.Usagef("--body-file: %v", openErr)
		}
		defer file.Close()
		body, err = readBody(file)
	}
	result := retrysafe.Result{Status: f.status, Header: header, Body: body}
	if err == nil && !f.noBody && operator.LacksBody(&result) {
		err = exit.Usagef("the answer has no body, and clients' programs read that of a %d", f.status).
			Hintf("give it with --body or --body-file; if your API answers without one, say --no-body")
	}
	return result, err
}

func (f *answerFlags) header() (header map[string][]string, err error) {
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		err := headerkind.CheckReplayed(name, value)
		if !ok {
			err = errors.New("it has no colon")
		}
		if err != nil {
			return nil, exit.Usagef("--header %q: %v", line, err).Hintf("it is written as 'Content-Type: application/json'")
		}
		if header == nil {
			header = map[string][]string{}
		}
		header[name] = append(header[name], strings.TrimSpace(value))
	}
	return header, nil
}

func readBody(from io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, maxBody+1))
	if err != nil {
		return nil, exit.Usagef("--body-file: %v", err)
	}
	if len(body) > maxBody {
		return nil, exit.Usagef("--body-file: the body is over %s bytes", terminal.Number(maxBody))
	}
	return body, nil
}

// preview returns the answer that is about to be stored, for a confirmation.
func preview(r *retrysafe.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %d %s", r.Status, http.StatusText(r.Status))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&b, "\n  %s: %s", printable.Text(name), printable.Text(value))
		}
	}
	body := "(no body)"
	if len(r.Body) > 0 {
		body = terminal.Clip(printable.Text(string(r.Body)), 300)
	}
	fmt.Fprintf(&b, "\n  %s", body)
	return b.String()
}
