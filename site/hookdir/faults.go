package hookdir

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Codes of what may be wrong with a hook. They don't change: monitoring may rely on them.
const (
	Missing       = "hook-missing"        // pushes are not guarded, or slow, or refused
	Foreign       = "hook-foreign"        // another program is in its place
	NotExecutable = "hook-not-executable" // git ignores it
	Outdated      = "hook-outdated"       // it is of another version
)

// A Fault is something that is wrong with the directory.
type Fault struct {
	Code, Path, Detail string
	// Open says that git does not run the hook that decides, and accepts pushes.
	Open bool
}

// program is what the build information of our hook names.
const programPath = "github.com/globalrefdb/globalrefdb/cmd/refdb-hook"

// IsProgram reports whether the file is refdb-hook, of any version.
func IsProgram(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Path == programPath
}

// Faults returns what is wrong with the directory, as the user of this process finds it. A nil program stands for that of any version.
func (d Dir) Faults(program []byte) []Fault { return d.faults(program) }

func (d Dir) faults(program []byte) (faults []Fault) {
	if _, err := os.Stat(d.HooksPath()); err != nil {
		return []Fault{{Missing, d.HooksPath(), "the site's hooks are gone (" + reason(err) + "): pushes are refused", false}}
	}
	if target, err := os.Readlink(d.HooksPath()); err == nil && program != nil && target != d.version(program) {
		faults = append(faults, Fault{Outdated, d.HooksPath(), "the site's hooks are of another version than the refdb-hook beside this program: restart the daemon", false})
		program = nil
	}
	if detail := d.notEnterable(""); detail != "" {
		faults = append(faults, Fault{NotExecutable, d.HooksPath(), detail, false})
	}
	var read fs.FileInfo // the file that the names share, once it was found to be right
	for _, name := range Names {
		info, err := os.Lstat(filepath.Join(d.HooksPath(), name))
		if err == nil && read != nil && os.SameFile(info, read) {
			continue
		}
		if f, bad := d.faultOf(name, program); bad {
			faults = append(faults, f)
		} else {
			read = info
		}
	}
	path := d.Config(nil)
	switch have, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist):
		faults = append(faults, Fault{Missing, path, "it is gone: pushes are refused", false})
	case err != nil:
		faults = append(faults, Fault{NotExecutable, path, reason(err) + ": git can't read the repositories' configuration, and refuses pushes and readers", false})
	case !bytes.Equal(have, d.configText(nil)):
		faults = append(faults, Fault{Foreign, path, "it was changed: this file leads git to the hooks, and determines which refs pushes see", false})
	}
	return faults
}

// faultOf returns what is wrong with one of the hooks.
func (d Dir) faultOf(name string, program []byte) (f Fault, bad bool) {
	f = Fault{Path: filepath.Join(d.HooksPath(), name), Open: name == Names[0]}
	info, err := os.Stat(f.Path)
	switch {
	case err != nil:
		f.Code, f.Detail = Missing, reason(err)+": "+Without(name)
	case !info.Mode().IsRegular():
		f.Code, f.Detail = Foreign, "it is not a file: "+Without(name)
	case unix.Access(f.Path, unix.X_OK) != nil:
		f.Code, f.Detail = NotExecutable, "it can't be run, because of its mode or of its file system's mount options; git ignores it: "+Without(name)
	case program == nil && !IsProgram(f.Path):
		f.Code, f.Detail = Foreign, "it is not refdb-hook: "+Without(name)
	case program != nil && !holds(f.Path, program, hookMode):
		f.Code, f.Detail = Foreign, "it is not refdb-hook as it was installed: "+Without(name)
	default:
		return f, false
	}
	return f, true
}

// Without returns what becomes of pushes if git doesn't run our hook of that name.
func Without(name string) string {
	switch name {
	case "reference-transaction":
		return "pushes are not guarded"
	case "update":
		return "pushes are refused as a whole, and over HTTP without the reason"
	case "pre-receive":
		return "pushes of many refs are slow, and the repository's own hook is not run"
	}
	return "the repository's own hook is not run"
}

// NotEnterable returns why not everybody who can reach the repository at dir can enter the directory; "" if they can.
func (d Dir) NotEnterable(dir string) string { return d.notEnterable(dir) }

func (d Dir) notEnterable(repository string) string {
	path, err := filepath.EvalSymlinks(d.HooksPath())
	if err != nil {
		return reason(err)
	}
	for depth := 0; path != "/"; depth++ {
		if repository == "" && depth == 2 {
			break // what is above is looked at with each repository
		}
		if within(repository, path) {
			break // who can't enter this one can't reach the repository either
		}
		info, err := os.Stat(path)
		if err != nil {
			return reason(err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Sprintf("not all users can enter %s: git would run none of the site's hooks for them, and read no configuration: chmod a+x %[1]s", path)
		}
		path = filepath.Dir(path)
	}
	return ""
}

// within reports whether a path is a directory or below it.
func within(path, dir string) bool {
	inside, err := filepath.Rel(dir, path)
	return path != "" && err == nil && filepath.IsLocal(inside)
}

// reason returns an error without the name of the operation and the path.
func reason(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
