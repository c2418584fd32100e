package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Why a question was not answered with yes.
var (
	// ErrNotInteractive says that standard input is not a terminal, so that the question
	// was not asked.
	ErrNotInteractive = errors.New("standard input is not a terminal")
	// ErrDeclined says that the answer was not yes.
	ErrDeclined = errors.New("not confirmed")
)

// Confirm asks the person at the terminal whether to go on, and returns nil if the
// answer is yes. If ctx ends first it returns the context's error.
func (s *Streams) Confirm(ctx context.Context, question string) error {
	return s.ask(ctx, question, "yes", "yes")
}

// ConfirmCount is [Streams.Confirm] for a change of n things: the answer has to be their
// number, with or without commas.
func (s *Streams) ConfirmCount(ctx context.Context, question string, n int) error {
	return s.ask(ctx, question, "the number "+Number(n), strconv.Itoa(n))
}

func (s *Streams) ask(ctx context.Context, question, prompt, want string) error {
	if !s.interactive(s.In) {
		return ErrNotInteractive
	}
	fmt.Fprintf(s.Err, "%s\nType %s to go on: ", question, prompt)
	answer := make(chan string, 1)
	go func() { // without an answer it ends with the process
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.EqualFold(strings.ReplaceAll(strings.TrimSpace(line), ",", ""), want) {
			return nil
		}
		return ErrDeclined
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return ctx.Err()
	}
}
