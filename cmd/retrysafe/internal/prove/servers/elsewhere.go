//go:build !linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

func killdb(context.Context, *prove.Env, *prove.Result) error { return errElsewhere() }

func ha(context.Context, *prove.Env, *prove.Result) error { return errElsewhere() }

func errElsewhere() error {
	return fmt.Errorf("start servers on %s, which takes Linux: %w", runtime.GOOS, errors.ErrUnsupported)
}
