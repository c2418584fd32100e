package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// confirm asks a person whether to go on. Where nobody can be asked, --yes has to
// have said so.
func (p *program) confirm(ctx context.Context, question string) error {
	if !p.person(p.stdin) {
		return misused("nobody can be asked here whether this is meant").hinted("say so with --yes")
	}
	fmt.Fprintf(p.stderr, "%s\nType yes to go on: ", question)
	answer := make(chan string, 1)
	go func() { // it ends with the process, if nobody answers
		line, _ := bufio.NewReader(p.stdin).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.EqualFold(strings.TrimSpace(line), "yes") {
			return nil
		}
		return failed(exitNo, "not confirmed; nothing was done")
	case <-ctx.Done():
		fmt.Fprintln(p.stderr)
		return failed(exitInterrupted, "interrupted; nothing was done")
	}
}
