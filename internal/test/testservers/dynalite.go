package testservers

import (
	"context"
	"crypto/sha256"
	_ "embed" // the versions of what npm installs
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dynaliteVersions names the version of every package. scripts/setup installs them into a
// directory that has its hash in the name.
//
//go:embed dynalite/package-lock.json
var dynaliteVersions []byte

// dynaliteMain starts the server. A client that hangs up in the middle of a request would
// end it otherwise.
const dynaliteMain = `process.on('uncaughtException', function (err) { console.error(err) })
require('dynalite/cli.js')
`

// A Dynalite is a running server that speaks DynamoDB's protocol, or one that was killed
// and can run again with the same data on the same port.
type Dynalite struct {
	*process
	port int
}

// StartDynalite starts an empty server. ctx bounds the start, not the server's life.
func StartDynalite(ctx context.Context) (*Dynalite, error) {
	node, err := findProgram("node", debianBin, "Node.js", "nodejs")
	if err != nil {
		return nil, err
	}
	installed, err := findDynalite()
	if err != nil {
		return nil, err
	}
	dir, err := newDir(memory(), "dynalite")
	if err != nil {
		return nil, err
	}
	// The user that servers run as may not read the cache of this one.
	program := filepath.Join(dir, "program")
	script := filepath.Join(program, "main.js")
	if err := errors.Join(os.CopyFS(program, os.DirFS(installed)), os.WriteFile(script, []byte(dynaliteMain), 0o644)); err != nil {
		return nil, fmt.Errorf("copy dynalite: %w", err)
	}
	d := &Dynalite{process: &process{name: filepath.Base(dir), dir: dir, orphaned: syscall.SIGKILL}}
	remember(d)
	if d.port, err = d.newPort(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.argv = []string{
		node, script, "--host", "127.0.0.1", "--port", strconv.Itoa(d.port),
		"--path", filepath.Join(dir, "data"), "--createTableMs", "1", "--deleteTableMs", "1",
	}
	if err := d.Restart(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// NewDynalite starts a server that ends with the test.
func NewDynalite(t TB) *Dynalite {
	t.Helper()
	d, err := StartDynalite(t.Context())
	return endWith(t, d, err)
}

// findDynalite returns the directory that scripts/setup has installed dynalite into.
func findDynalite() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(dynaliteVersions)
	dir := filepath.Join(cache, "retrysafe", "npm", "dynalite-"+hex.EncodeToString(sum[:6]))
	if !hasAll(dir, "ready") {
		return "", fmt.Errorf("dynalite: %w: run scripts/setup, which installs it by npm", ErrMissing)
	}
	return dir, nil
}

// Addr is the server's host and port; they survive a restart.
func (d *Dynalite) Addr() string { return "127.0.0.1:" + strconv.Itoa(d.port) }

// URL is the endpoint of the server.
func (d *Dynalite) URL() string { return "http://" + d.Addr() }

// Restart kills the server, if it runs, and starts it again with the data that it has on
// disk. It returns when requests are answered.
func (d *Dynalite) Restart(ctx context.Context) error {
	if err := d.Kill(); err != nil {
		return err
	}
	if err := d.start(); err != nil {
		return d.errorf("start", err)
	}
	ready := func() bool {
		return converses(ctx, d.Addr(), "GET / HTTP/1.1\r\nHost: dynalite\r\nConnection: close\r\n\r\n", "HTTP/1.1 200")
	}
	if err := d.awaitReady(ctx, ready); err != nil {
		return errors.Join(d.withLog("start", err), d.Kill())
	}
	return nil
}

// Close ends the server and removes its directory.
func (d *Dynalite) Close() error {
	err := errors.Join(d.Kill(), d.releasePorts(), os.RemoveAll(d.dir))
	forget(d)
	if err != nil {
		return d.errorf("close", err)
	}
	return nil
}
