package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// World is what a command line of a test has around it.
type World struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            map[string]string
	// Person says that somebody sits at a terminal.
	Person bool
	Hangup <-chan os.Signal
}

func (w *World) program() *program {
	return &program{
		stdin: w.Stdin, stdout: w.Stdout, stderr: w.Stderr,
		env:     func(name string) (string, bool) { v, ok := w.Env[name]; return v, ok },
		person:  func(any) bool { return w.Person },
		hangups: func(context.Context) <-chan os.Signal { return w.Hangup },
	}
}

// Run runs a command line and returns its exit code.
func Run(ctx context.Context, args []string, w *World) int { return run(ctx, args, w.program()) }

// Root is the whole tree of commands.
func Root() *cobra.Command { return new(World).program().root() }

// ExitCodes is what the exit codes mean.
const ExitCodes = exitCodes

// IsTerminal says whether a stream is one.
var IsTerminal = isTerminal
