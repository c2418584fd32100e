//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/prove"
)

var errLinuxOnly = errors.New("servers of our own are started on Linux only")

func serverChecks() []prove.Check { return nil }

func ownPostgres(context.Context) (url string, stop func(), err error) { return "", nil, errLinuxOnly }

func missing(err error) bool { return errors.Is(err, errLinuxOnly) }
