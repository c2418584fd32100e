package testservers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	homePrefix = "retrysafe-servers-"
	homeLock   = "in-use"
)

// home is what this process has: on disk, and in memory, one directory under
// which each server has its own.
var home struct {
	mu      sync.Mutex
	dirs    map[string]homeDir // by the directory that they are in
	count   int
	servers map[closer]bool
}

// A homeDir holds a lock file that the kernel unlocks when the process ends, so
// that the next one can tell what is waste.
type homeDir struct {
	path string
	lock *os.File
}

type closer interface{ Close() error }

// Shutdown closes every server of this process and removes what is left of
// them on disk. Servers can be started again afterwards.
func Shutdown() error {
	home.mu.Lock()
	var open []closer
	for s := range home.servers {
		open = append(open, s)
	}
	home.mu.Unlock()
	var errs []error
	for _, s := range open {
		errs = append(errs, s.Close())
	}
	forgetTemplates()

	home.mu.Lock()
	defer home.mu.Unlock()
	for _, dir := range home.dirs {
		errs = append(errs, os.RemoveAll(dir.path), dir.lock.Close())
	}
	clear(home.dirs)
	return errors.Join(errs...)
}

// memory is a file system in memory, or the disk if it has no room for servers:
// containers often have a tiny one.
func memory() string {
	const dir, room = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || int64(fs.Bavail)*fs.Bsize < room {
		return os.TempDir()
	}
	return dir
}

// newDir makes an empty directory below base that belongs to the user that servers run
// as.
func newDir(base, name string) (string, error) {
	home.mu.Lock()
	defer home.mu.Unlock()
	house, ok := home.dirs[base]
	if !ok {
		var err error
		if house, err = makeHome(base); err != nil {
			return "", fmt.Errorf("make a directory for servers: %w", err)
		}
		if home.dirs == nil {
			home.dirs, home.servers = map[string]homeDir{}, map[closer]bool{}
		}
		home.dirs[base] = house
	}
	home.count++
	dir := filepath.Join(house.path, fmt.Sprintf("%s-%d", name, home.count))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, give(dir)
}

// makeHome also removes the homes of processes that ended without Shutdown.
func makeHome(base string) (homeDir, error) {
	old, _ := filepath.Glob(filepath.Join(base, homePrefix+"*"))
	for _, dir := range old {
		if lock, err := lockFile(filepath.Join(dir, homeLock), 0); err == nil {
			_ = os.RemoveAll(dir) // another user's waste is not ours to report
			_ = lock.Close()
		}
	}
	dir, err := os.MkdirTemp(base, homePrefix)
	if err != nil {
		return homeDir{}, err
	}
	// Locked before it has its name: no other process finds it unlocked while this one lives.
	lock, err := lockFile(filepath.Join(dir, homeLock+".new"), os.O_CREATE)
	if err != nil {
		return homeDir{}, err
	}
	return homeDir{dir, lock}, errors.Join(
		os.Rename(lock.Name(), filepath.Join(dir, homeLock)),
		os.Chmod(dir, 0o755)) // the servers' user must get through
}

// lockFile opens a file and locks it, or fails if another process has.
func lockFile(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// remember makes Shutdown close s.
func remember(s closer) {
	home.mu.Lock()
	defer home.mu.Unlock()
	home.servers[s] = true
}

// forget is called when s is closed.
func forget(s closer) {
	home.mu.Lock()
	defer home.mu.Unlock()
	delete(home.servers, s)
}
