package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// maxRefsVar is how many bytes of refs fit a variable: Linux starts no
	// program with one of 128 KiB.
	maxRefsVar = 64 << 10

	// underVar names the locks that a command runs under: an owner and a token to a line.
	underVar = "REFDB_UNDER"
)

// environment is what a command finds its lock in.
type environment struct {
	vars []string
	file string // of refs, "": none
}

func (l *locking) environment(lock *refdb.Lock) (e environment, err error) {
	under := strings.TrimSpace(l.env(underVar) + "\n" + lockName(lock.Owner(), lock.Token()))
	set := map[string]string{
		"REFDB_PROJECT": lock.Project(),
		"REFDB_TOKEN":   strconv.FormatInt(int64(lock.Token()), 10),
		"REFDB_OWNER":   lock.Owner(),
		underVar:        under,
	}
	if refs := strings.Join(lock.Refs(), "\n"); len(refs) <= maxRefsVar {
		set["REFDB_REFS"] = refs
	} else if e.file, err = writeRefs(refs); err != nil {
		return e, fmt.Errorf("writing the names of the locked refs to a file for the command: %w", err)
	} else {
		set["REFDB_REFS_FILE"] = e.file
	}
	if l.passDB {
		set["REFDB_URL"] = l.url
	}
	own := []string{"REFDB_REFS", "REFDB_REFS_FILE"} // not those of a lock around ours
	for name := range set {
		own = append(own, name)
	}
	e.vars = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(own, name)
	})
	for name, value := range set {
		e.vars = append(e.vars, name+"="+value)
	}
	return e, nil
}

func writeRefs(refs string) (path string, err error) {
	f, err := os.CreateTemp("", "refdbctl-refs-*")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(refs + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// remove ends what was made for the command.
func (e environment) remove() {
	if e.file != "" {
		os.Remove(e.file)
	}
}

// refuseNested fails if we run under one of the locks that stand in the way: it
// would never be released.
func (l *locking) refuseNested(locked *refdb.LockedError) error {
	around := strings.Split(l.env(underVar), "\n")
	for _, h := range locked.Holders {
		if slices.Contains(around, lockName(h.Owner, h.Token)) {
			return fmt.Errorf("this runs under the lock on %s %s already, and would wait for itself: %w", h.Project, h.Ref, locked)
		}
	}
	return nil
}

func lockName(owner string, token refdb.Token) string {
	return owner + " " + strconv.FormatInt(int64(token), 10)
}
