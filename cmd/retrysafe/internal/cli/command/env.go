// Package command is what the commands of the program are made of: the process around
// them, groups, arguments, and flags with values of their own.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// An Env is the process that a command runs in. Tests have one of their own.
type Env struct {
	terminal.Streams
	// LookupEnv returns a variable of the environment.
	LookupEnv func(name string) (string, bool)
	// Hangups returns a channel that receives a value whenever the process is asked to
	// read its configuration again, until ctx ends.
	Hangups func(ctx context.Context) <-chan os.Signal
}

// Getenv returns a variable of the environment, or an empty text.
func (e *Env) Getenv(name string) string {
	v, _ := e.LookupEnv(name)
	return v
}

// Confirm asks the person at the terminal whether to go on. Without a terminal the
// command line must have --yes instead.
func (e *Env) Confirm(ctx context.Context, question string) error {
	return confirmed(e.Streams.Confirm(ctx, question), "--yes")
}

// ConfirmCount asks the person at the terminal to type how many things are about to be
// changed. Without a terminal the command line must have --yes-count instead.
func (e *Env) ConfirmCount(ctx context.Context, question string, n int) error {
	return confirmed(e.Streams.ConfirmCount(ctx, question, n), fmt.Sprintf("--yes-count %d", n))
}

func confirmed(err error, flag string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, terminal.ErrNotInteractive):
		return exit.Usagef("this needs a confirmation, and standard input is not a terminal").Hintf("confirm with %s", flag)
	case errors.Is(err, terminal.ErrDeclined):
		return exit.Errorf(exit.No, "not confirmed; nothing was done")
	default:
		return exit.Errorf(exit.Interrupted, "interrupted; nothing was done")
	}
}
