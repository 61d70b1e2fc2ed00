package site

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// AsOwner calls do as the user that [BecomeOwner] switches to, and switches back to root: the
// database may admit only that user.
func AsOwner(path string, do func() error) error {
	o, another, err := otherOwner(path)
	if err != nil {
		return err
	}
	if !another {
		return do()
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	home, gid := os.Getenv("HOME"), os.Getgid()
	// With root as the saved user, the owner's other processes can't inspect this process, and it
	// can switch back.
	err = errors.Join(syscall.Setgroups([]int{o.gid}), syscall.Setresgid(o.gid, o.gid, 0))
	if err == nil {
		err = syscall.Setresuid(o.uid, o.uid, 0)
	}
	if err == nil {
		err = errors.Join(os.Setenv("HOME", o.home), makeUndumpable())
	}
	if err != nil {
		return fmt.Errorf("being user %d, who owns %s: %w", o.uid, path, err)
	}
	err = do()
	back := syscall.Setresuid(0, 0, 0)
	if back == nil {
		back = errors.Join(syscall.Setresgid(gid, gid, gid), syscall.Setgroups(groups), os.Setenv("HOME", home), makeUndumpable())
	}
	return errors.Join(err, back)
}
