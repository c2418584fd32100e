//go:build !unix && !windows

package journal

import (
	"errors"
	"os"
)

// lock fails: without a lock two processes could use one journal.
func lock(string) (*os.File, error) {
	return nil, errors.New("this system cannot lock files; use a journal in a database")
}

func unlock(f *os.File) error { return f.Close() }

func ignoreUnsupported(err error) error { return err }
