package testservers

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account returns whom servers run as: nil, which is ourselves, unless we are
// root. Servers refuse to run as root, and then it is postgres or nobody.
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

// give makes path belong to whom servers run as.
func give(path string) error {
	who, err := account()
	if err != nil || who == nil {
		return err
	}
	return os.Chown(path, int(who.Uid), int(who.Gid))
}
