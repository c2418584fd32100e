package testservers_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// portIsKept holds if a server that is down still has its port: connections are
// refused, and no other program can listen on it.
func portIsKept(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to a server that is down gets %v, want connection refused", err)
	}
	l, err := net.Listen("tcp", addr)
	if err == nil {
		_ = l.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another program that listens on the server's port gets %v, want address already in use", err)
	}
}
