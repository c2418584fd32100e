package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// unixPrefix is what an address begins with that is the path of a socket.
const unixPrefix = "unix:"

// A socketFile is a listener on a unix socket that only the user of this process may
// connect to. It removes its file when it is closed, unless another process has replaced
// it.
type socketFile struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// openSocket listens on a socket at path. A socket there that is not listened on is
// replaced: a process that was killed has left it behind. The socket is made in a
// directory that only this user may enter and moved to its place with its permissions
// set, so that there is no moment at which another user could connect.
func openSocket(ctx context.Context, path string) (_ *socketFile, err error) {
	if err := checkFree(ctx, path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".rs")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the directory %s does not exist: create it, or choose another path for admin.socket", filepath.Dir(path))
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the user of this process may not write into the directory %s: allow it, or choose another path for admin.socket", filepath.Dir(path))
	case err != nil:
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }() // the socket has left it, or is not needed
	at := filepath.Join(private, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ln := l.(*net.UnixListener)
	ln.SetUnlinkOnClose(false)
	s := &socketFile{UnixListener: ln, path: path}
	if err = os.Chmod(at, 0o600); err == nil {
		s.made, err = os.Stat(at)
	}
	if err == nil {
		err = os.Rename(at, path)
	}
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	return s, nil
}

// checkFree returns an error if the path is in use.
func checkFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists, and is not a socket: choose another path for admin.socket, or remove it", path)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil //nolint:nilerr // nothing listens there
	}
	_ = c.Close()
	return fmt.Errorf("another process listens on %s: stop it, or choose another path for admin.socket", path)
}

// Close stops listening and removes the file.
func (s *socketFile) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
		_ = os.Remove(s.path) // the next process replaces it
	}
	return s.UnixListener.Close()
}
