package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errSharing is ERROR_SHARING_VIOLATION.
const errSharing = syscall.Errno(32)

// lock opens the file and shares it with no other process.
func lock(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharing) {
		return nil, fmt.Errorf("%w by another process; a journal belongs to one process at a time: stop that one, or give this one a journal of its own", ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return os.NewFile(uintptr(h), path), nil
}

func unlock(f *os.File) error { return f.Close() }

// ignoreUnsupported: Windows cannot sync a directory, and need not.
func ignoreUnsupported(error) error { return nil }
