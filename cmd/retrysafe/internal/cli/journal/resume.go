package journal

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func resumeCommand(env *command.Env, f *flags) *cobra.Command {
	var fromEnv []string
	var timeout, window time.Duration
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Send the unfinished operations of a journal again, with their own keys",
		Long: `Sends each unfinished operation again, with its own key and bytes, until it has a final
answer, and stores the answer. Nothing runs twice at an API that honours keys. A journal has
no credentials: --header-env takes the value of a header from the environment.

Operations that are older than --window are not sent, because the API may have forgotten
their keys. The exit code is 4 if the outcome of an operation is still unknown.`,
		Example: `  retrysafe journal resume --journal payments.journal
  # with a token from the environment, as Bearer …
  retrysafe journal resume --journal payments.journal --header-env Authorization=PAYMENTS_TOKEN`,
		Args: command.Args(),
	}
	cmd.Flags().StringArrayVar(&fromEnv, "header-env", nil, "`HEADER=VARIABLE`: send the header with the variable's value; may be repeated")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to try for one operation")
	cmd.Flags().DurationVar(&window, "window", 20*time.Hour, "how old an operation may be; less than the time for which the API remembers keys")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		header, err := headers(env, fromEnv)
		if err != nil {
			return err
		}
		if timeout <= 0 || window <= 0 {
			return exit.Usagef("--timeout and --window are above zero")
		}
		j, err := f.open(cmd.Context(), env, false)
		if err != nil {
			return err
		}
		defer j.Close()
		c, err := client.New(&client.Options{
			Journal: j, MaxElapsed: timeout, Window: window,
			Authorize: func(r *http.Request) error {
				for name, values := range header {
					r.Header[name] = values
				}
				return nil
			},
		})
		if err != nil {
			return exit.Usagef("%v", err)
		}
		answered, doubtful := 0, 0
		err = c.Resume(cmd.Context(), func(op client.Operation, response *http.Response, err error) {
			if err == nil {
				answered++
				fmt.Fprintf(env.Out, "%s: answered %d\n", name(&op), response.StatusCode)
				return
			}
			if _, mismatch := errors.AsType[*client.MismatchError](err); !mismatch {
				doubtful++
			}
			fmt.Fprintf(env.Out, "%s: %s\n", name(&op), printable.Text(exit.Plain(err)))
		})
		if err != nil {
			return exit.Errorf(exit.Store, "%v", err)
		}
		fmt.Fprintf(env.Err, "%s\n", terminal.Count(answered, "operation was answered", "operations were answered"))
		if doubtful > 0 {
			return exit.Errorf(exit.Unsure, "the outcome of %s is not known", terminal.Count(doubtful, "operation", "operations")).
				Hintf("run this again later; see: retrysafe journal list")
		}
		return nil
	})
	return cmd
}

// headers reads the values of headers from the environment, so that no secret is on a command
// line.
func headers(env *command.Env, fromEnv []string) (http.Header, error) {
	h := http.Header{}
	for _, text := range fromEnv {
		name, variable, ok := strings.Cut(text, "=")
		if !ok || name == "" || variable == "" {
			return nil, exit.Usagef("--header-env %q is not HEADER=VARIABLE", text).Hintf("for example Authorization=PAYMENTS_TOKEN")
		}
		value, ok := env.LookupEnv(variable)
		if !ok || value == "" {
			return nil, exit.Usagef("--header-env: the variable %s is not set", variable)
		}
		h.Set(name, value)
	}
	return h, nil
}
