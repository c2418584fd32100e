// Package child starts this very program again, as a process that a check can kill.
//
// A program whose checks need children begins with
//
//	if code, is := child.Run(roles); is {
//		os.Exit(code)
//	}
package child

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// What a child is told, by its environment.
const (
	envRole = "RETRYSAFE_PROVE_ROLE"
	envTask = "RETRYSAFE_PROVE_TASK"
)

// A Role is what a child does: task is what it was told, in JSON. An error ends it
// with exit code 3, and is the last line of its standard error.
type Role func(ctx context.Context, task []byte) error

// Run plays the role that this process was started for. It reports false, and does
// nothing, in a process that was not started by [Command].
func Run(roles map[string]Role) (code int, is bool) {
	name, is := os.LookupEnv(envRole)
	if !is {
		return 0, false
	}
	play, known := roles[name]
	if !known {
		fmt.Fprintf(os.Stderr, "this program has no role %q\n", name)
		return 3, true
	}
	if err := play(context.Background(), []byte(os.Getenv(envTask))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3, true
	}
	return 0, true
}

// Command returns the command that starts this program again in a role. The child
// dies with its parent, however that ends, and with ctx.
func Command(ctx context.Context, role string, task any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	told, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("tell %s its task: %w", role, err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envRole+"="+role, envTask+"="+string(told))
	dieWithParent(cmd)
	return cmd, nil
}

// Tie lets another command end with this program, as those of [Command] do.
func Tie(cmd *exec.Cmd) { dieWithParent(cmd) }
