//go:build !linux

package main

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("servers of our own are started on Linux only")

func ownPostgres(context.Context) (url string, err error) { return "", errLinuxOnly }

func stopServers() error { return nil }

func missing(err error) bool { return errors.Is(err, errLinuxOnly) }
