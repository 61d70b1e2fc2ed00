package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// becomeOwner makes root's process one of the user who owns a repository, or the daemon's
// state: what it writes there is to be that user's. The database's address, which only root may be able to
// read, has been read by then.
func becomeOwner(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	uid, gid := int(owner.Uid), int(owner.Gid)
	home := "/"
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		home = u.HomeDir
		if n, err := strconv.Atoi(u.Gid); err == nil {
			gid = n
		}
	}
	err = errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid))
	if err == nil {
		err = syscall.Setuid(uid)
	}
	if err == nil {
		err = errors.Join(os.Setenv("HOME", home), conceal())
	}
	if err != nil {
		return fmt.Errorf("becoming user %d, who owns %s: %w", uid, path, err)
	}
	return nil
}
