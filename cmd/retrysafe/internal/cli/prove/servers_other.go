//go:build !linux

package prove

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("servers are started on Linux only")

func startPostgres(context.Context) (url string, err error) { return "", errLinuxOnly }

func stopServers() error { return nil }

func isNotInstalled(err error) bool { return errors.Is(err, errLinuxOnly) }
