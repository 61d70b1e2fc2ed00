package locking

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxRefsVar is the maximum number of bytes of refs in a variable: Linux starts no program with
	// a variable of 128 KiB.
	maxRefsVar = 64 << 10

	// UnderVar lists the holds that a command runs under, one per line: owner and token.
	UnderVar = "REFDB_UNDER"
)

// An Environment describes a hold to the command that runs under it.
type Environment struct {
	Vars []string
	file string // with the refs, or ""
}

// EnvironmentOf returns this process's environment with a description of the hold. under is the
// value of UnderVar; url, unless empty, is the database's. The caller calls Remove after the
// command's end.
func EnvironmentOf(h Hold, under, url string) (e Environment, err error) {
	set := map[string]string{
		"REFDB_PROJECT": h.Project(),
		"REFDB_TOKEN":   strconv.FormatInt(int64(h.Token()), 10),
		"REFDB_OWNER":   h.Owner(),
		UnderVar:        strings.TrimSpace(under + "\n" + Name(h.Owner(), h.Token())),
	}
	if refs := strings.Join(h.Refs(), "\n"); len(refs) <= maxRefsVar {
		set["REFDB_REFS"] = refs
	} else if e.file, err = writeRefs(refs); err != nil {
		return e, fmt.Errorf("writing the names of the locked refs to a file for the command: %w", err)
	} else {
		set["REFDB_REFS_FILE"] = e.file
	}
	if url != "" {
		set["REFDB_URL"] = url
	}
	own := []string{"REFDB_REFS", "REFDB_REFS_FILE"} // an enclosing lock may have set the other one
	for name := range set {
		own = append(own, name)
	}
	e.Vars = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(own, name)
	})
	for name, value := range set {
		e.Vars = append(e.Vars, name+"="+value)
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

// Remove removes the file with the refs.
func (e Environment) Remove() {
	if e.file != "" {
		os.Remove(e.file)
	}
}
