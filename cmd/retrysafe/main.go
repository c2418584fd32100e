// Retrysafe makes any POST retry-safe: a gateway before services in any language, a
// demo, and the tools of those who operate them. retrysafe --help says what it can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
)

func main() {
	if code, is := child.Run(proveRoles()); is {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], &program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		env: os.LookupEnv, person: isTerminal, hangups: hangups,
	}))
}

// hangups takes SIGHUP for what it means to a server. To all other commands it is
// what it always was.
func hangups(ctx context.Context) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(c) })
	return c
}
