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

// Codes of hook faults. They don't change: monitoring may rely on them.
const (
	Missing       = "hook-missing"        // pushes are not guarded, or slow, or refused
	Foreign       = "hook-foreign"        // another program in its place
	NotExecutable = "hook-not-executable" // git ignores it
	Outdated      = "hook-outdated"       // of another version
)

// A Fault is a defect of the directory.
type Fault struct {
	Code, Path, Detail string
	// Open means that git does not run the deciding hook, and accepts pushes.
	Open bool
}

// programPath is the path in the build information of refdb-hook.
const programPath = "github.com/globalrefdb/globalrefdb/cmd/refdb-hook"

// IsProgram reports whether the file is refdb-hook, of any version.
func IsProgram(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Path == programPath
}

// Faults returns the defects of the directory, as seen by the user of this process. A nil program
// stands for any version of refdb-hook.
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
	var read fs.FileInfo // the file that the names share, once it has been verified
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

// faultOf returns the defect of one of the hooks.
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

// Without returns the consequence for pushes if git doesn't run the hook of that name.
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

// NotEnterable returns the reason why some users who can reach the repository at dir can't enter
// the directory; "" if all can.
func (d Dir) NotEnterable(dir string) string { return d.notEnterable(dir) }

func (d Dir) notEnterable(repository string) string {
	path, err := filepath.EvalSymlinks(d.HooksPath())
	if err != nil {
		return reason(err)
	}
	for depth := 0; path != "/"; depth++ {
		if repository == "" && depth == 2 {
			break // the directories above are checked with each repository
		}
		if within(repository, path) {
			break // users who can't enter this directory can't reach the repository either
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

// within reports whether a path equals a directory or is below it.
func within(path, dir string) bool {
	inside, err := filepath.Rel(dir, path)
	return path != "" && err == nil && filepath.IsLocal(inside)
}

// reason returns the text of an error without the operation and the path.
func reason(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
