package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// Main runs the command line of this process and returns the exit code. A process that a
// check of retrysafe prove has started plays its part in that check instead.
func Main() int {
	if code, ok := runProveChild(); ok {
		return code
	}
	return Run(untilSignal(), os.Args[1:], &command.Env{
		Streams:   terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
		LookupEnv: os.LookupEnv,
		Hangups:   hangups,
	})
}

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. By then the
// second one has its usual effect again, so that it ends the process at once. With
// signal.NotifyContext a second signal that follows quickly would be lost.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // until the process ends
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

// hangups returns a channel that receives SIGHUP until ctx ends. Commands that do not
// call it are ended by that signal.
func hangups(ctx context.Context) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(c) })
	return c
}

// Run runs a command line and returns the exit code. Errors are reported on standard
// error.
func Run(ctx context.Context, args []string, env *command.Env) int {
	root := Root(env)
	root.SetArgs(append([]string{}, args...)) // cobra takes those of the process for nil
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return int(exit.OK)
	}
	e := exit.Of(err, ran.CommandPath())
	for _, line := range e.Lines() {
		fmt.Fprintln(env.Err, line)
	}
	return int(e.Code)
}
