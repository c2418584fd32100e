package testservers

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account returns the user that servers run as: nil, the user of this process, unless
// that is root. Servers refuse to run as root; they run as the user postgres, or as the
// unprivileged user of the system.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var err error
	for _, name := range []string{"postgres", "nobody"} {
		var u *user.User
		if u, err = user.Lookup(name); err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("find a user other than root to run servers as: %w", err)
}

// give makes path belong to the user that servers run as.
func give(path string) error {
	who, err := account()
	if err != nil || who == nil {
		return err
	}
	return os.Chown(path, int(who.Uid), int(who.Gid))
}
