package main

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// loadConfig returns what a configuration file says, with flags over it. Without a
// path the flags are all there is.
func (p *program) loadConfig(path string, flags ...config.Flag) (c *config.Config, err error) {
	if path == "" {
		c, err = config.Parse("", nil, p.env, flags...)
	} else {
		c, err = config.Load(path, p.env, flags...)
	}
	if err != nil {
		return nil, badConfig(path, err)
	}
	return c, nil
}

// badConfig says what is wrong with a configuration, all of it.
func badConfig(path string, err error) *failure {
	if errors.Is(err, fs.ErrNotExist) {
		return misused("there is no configuration file %s", path)
	}
	if _, ok := errors.AsType[*config.FieldError](err); !ok {
		return misused("%v", err)
	}
	f := misused("")
	f.all, f.cause = strings.Split(err.Error(), "\n"), err
	if path == "" {
		return f.hinted("see retrysafe gateway --help")
	}
	return f
}
