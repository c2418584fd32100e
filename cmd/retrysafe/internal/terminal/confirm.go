package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	if !s.interactive(s.In) {
		return ErrNotInteractive
	}
	fmt.Fprintf(s.Err, "%s\nType yes to go on: ", question)
	answer := make(chan string, 1)
	go func() { // without an answer it ends with the process
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.EqualFold(strings.TrimSpace(line), "yes") {
			return nil
		}
		return ErrDeclined
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return ctx.Err()
	}
}
