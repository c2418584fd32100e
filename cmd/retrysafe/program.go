package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

// program is what the commands have of the world around them.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) (string, bool)
	// person reports whether a stream is somebody at a terminal.
	person func(stream any) bool
	// hangups returns where somebody asks for configuration to be read again, until
	// ctx ends.
	hangups func(ctx context.Context) <-chan os.Signal
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, p *program) int {
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // none are none, not those of the process
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	f := failureOf(err, ran)
	for _, line := range f.lines() {
		fmt.Fprintln(p.stderr, line)
	}
	return f.code
}

// getenv returns a variable of the environment, or nothing.
func (p *program) getenv(name string) string {
	v, _ := p.env(name)
	return v
}

// isTerminal reports whether a stream is a terminal. The null device is one of
// characters, too, but nobody sits there.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
