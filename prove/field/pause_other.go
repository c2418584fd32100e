//go:build !unix

package field

import "errors"

var errNoPause = errors.New("processes cannot be paused on this system")

func (p *process) pause() error { return errNoPause }

func (p *process) resume() error { return errNoPause }
