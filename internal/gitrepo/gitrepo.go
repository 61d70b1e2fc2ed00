// Package gitrepo reads and changes a Git repository on this machine: refs, lock
// files, objects and packs. It reads single refs from files, which takes
// microseconds, and runs git for everything else.
package gitrepo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Repo is a Git repository, bare or not.
type Repo struct {
	path     string // as given, for messages
	gitDir   string
	common   string // the real path of what all work trees share
	format   string // of refs: "files", "reftable", or what a later git calls it
	idBytes  int    // of an object ID in hex
	precious bool   // git removes no object
	bare     bool
	// incoming, unless nil, has objects of a push beside those of the repository.
	incoming *quarantine
}

// A Ref is a ref of a repository.
type Ref struct {
	Name string
	// Value is an object ID, or "ref: " and the target of a symbolic ref.
	Value string
}

// Open finds the repository at path: a bare one, a work tree's top or its .git.
// Directories above path are not searched: they would be another repository than the
// one that was named.
func Open(ctx context.Context, path string) (*Repo, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", path, err)
	}
	// Git compares the ceiling with real paths.
	resolved, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", path, pathReason(err))
	}
	if info, err := os.Stat(resolved); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("repository %q is not a directory: give the path of a Git repository", path)
	}
	cmd := git(ctx, "-C", resolved, "rev-parse", "--absolute-git-dir")
	cmd.Env = append(cmd.Env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(resolved))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%q is not a Git repository that can be read: %w", path, reason(ctx, err))
	}
	gitDir := strings.TrimSuffix(string(out), "\n") // the real path
	common, err := commonDir(gitDir)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", path, err)
	}
	return load(path, gitDir, common)
}

// Dir returns the absolute real path of the directory that the repository's
// work trees share: the Git directory itself, except in an additional work tree.
func (r *Repo) Dir() string { return r.common }

// IsPrecious reports whether git refuses to remove objects of the repository, or packs (extensions.preciousObjects).
func (r *Repo) IsPrecious() bool { return r.precious }

// IsBare reports whether the repository has no work tree of its own, as its configuration says.
func (r *Repo) IsBare() bool { return r.bare }

// Command returns a git command for the repository. It runs in a process group of its own, prints
// English, and does not get the variables of a hook's environment that point to a repository.
func (r *Repo) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := git(ctx, append([]string{"--git-dir=" + r.gitDir}, args...)...)
	if r.incoming != nil {
		r.incoming.confine(cmd)
	}
	return cmd
}

// Head returns what HEAD holds.
func (r *Repo) Head(ctx context.Context) (Ref, error) {
	if value, ok := r.headFile(); ok {
		return Ref{Name: "HEAD", Value: value}, nil
	}
	out, err := r.Command(ctx, "symbolic-ref", "--quiet", "HEAD").Output()
	if err == nil {
		return Ref{Name: "HEAD", Value: "ref: " + strings.TrimSuffix(string(out), "\n")}, nil
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return Ref{}, fmt.Errorf("reading HEAD of %q: %w", r.path, reason(ctx, err))
	}
	// Exit status 1 says that HEAD is detached: it holds an object ID.
	out, err = r.Command(ctx, "rev-parse", "--verify", "HEAD").Output()
	if err != nil {
		return Ref{}, fmt.Errorf("reading HEAD of %q: %w", r.path, reason(ctx, err))
	}
	return Ref{Name: "HEAD", Value: strings.TrimSuffix(string(out), "\n")}, nil
}

// headFile returns what HEAD holds if it is a file that points to a branch, as git writes it. Whatever else it may be is left to git.
func (r *Repo) headFile() (value string, ok bool) {
	if r.format != "files" {
		return "", false
	}
	path := filepath.Join(r.gitDir, "HEAD")
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	text, err := os.ReadFile(path)
	value, ended := strings.CutSuffix(string(text), "\n")
	name, points := strings.CutPrefix(value, "ref: ")
	if err != nil || !ended || !points || checkName(name) != nil {
		return "", false
	}
	text, err = os.ReadFile(filepath.Join(r.common, name))
	return value, (err == nil || errors.Is(err, fs.ErrNotExist)) && !bytes.HasPrefix(text, []byte("ref:"))
}

// Refs iterates over all refs but HEAD, in byte order of their names, as git
// prints them: they are never all in memory. warn is called with each line of
// complaint by git, such as that it ignores a broken ref. An error ends it.
func (r *Repo) Refs(ctx context.Context, warn func(line string)) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		if err := r.refs(ctx, warn, yield); err != nil {
			yield(Ref{}, fmt.Errorf("reading the refs of %q: %w", r.path, err))
		}
	}
}

// refs returns nil once yield has returned false.
func (r *Repo) refs(ctx context.Context, warn func(string), yield func(Ref, error) bool) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	// A ref's name holds no NUL and no newline.
	cmd := r.Command(running, "for-each-ref", "--format=%(objectname)%00%(symref)%00%(refname)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var complaints bytes.Buffer
	cmd.Stderr = &limited{to: &complaints, left: 1 << 20}
	if err := cmd.Start(); err != nil {
		return reason(ctx, err)
	}
	in := bufio.NewReader(stdout)
	line, err := in.ReadString('\n')
	for ; err == nil; line, err = in.ReadString('\n') {
		ref, ok := parseRef(line)
		if !ok {
			break
		}
		if !yield(ref, nil) {
			stop()
			cmd.Wait() // killed: its status says nothing
			return nil
		}
	}
	if line != "" {
		stop()
		cmd.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("git for-each-ref printed %q", line)
	}
	if err := cmd.Wait(); err != nil {
		return reason(ctx, withStderr(err, complaints.Bytes()))
	}
	if ctx.Err() != nil { // git was quicker: its end is no answer to that
		return context.Cause(ctx)
	}
	for line := range strings.Lines(complaints.String()) {
		warn(strings.TrimSpace(line))
	}
	return nil
}

func parseRef(line string) (Ref, bool) {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), "\x00")
	if len(fields) != 3 || fields[2] == "" {
		return Ref{}, false
	}
	ref := Ref{Name: fields[2], Value: fields[0]}
	if fields[1] != "" {
		ref.Value = "ref: " + fields[1]
	}
	return ref, true
}

// pointers are the variables that point git to another repository than the one that is named. Git
// sets them for hooks.
var pointers = []string{
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE",
	"GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_REFERENCE_BACKEND", "GIT_WORK_TREE",
}

// Environ returns the environment for git. It lacks the variables that point to a repository, and the
// database's address, which git and the programs that it runs could reveal. Git sees objects as they are, not as
// refs/replace/, which anybody who may push can write, shows them.
func Environ() []string {
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == "REFDB_URL" || slices.Contains(pointers, name)
	})
	return append(environ, "GIT_NO_REPLACE_OBJECTS=1")
}

func git(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	// Ctrl-C interrupts this program only, which then ends git in an orderly way.
	cmd.SysProcAttr = ownGroup()
	// Other sites don't have the grafts of this repository.
	cmd.Env = append(Environ(), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_GRAFT_FILE=")
	return cmd
}

// pathReason drops the resolved path from err: the message names the given one.
func pathReason(err error) error {
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// limited is a writer that drops what exceeds its limit.
type limited struct {
	to   *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := min(len(p), l.left)
	l.left -= keep
	l.to.Write(p[:keep])
	return len(p), nil
}
