package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Move changes what a ref holds, from one object ID to another. An empty ID stands for an absent ref.
type Move struct{ Ref, From, To string }

// Unhooked describes a git that moves refs for the site itself: it runs no hooks.
type Unhooked struct {
	// LockWait is how long a move waits for a lock file that any part of it would need
	// ([RefusedError.AllLocked]). It does not wait for the lock files of single refs.
	LockWait time.Duration
	// Message is for the reflog; "" leaves it to git.
	Message string
	// Hooks are those in git's configuration ([Repo.ConfiguredHooks]), which core.hooksPath does not
	// disable.
	Hooks []string
	// Inherits, unless nil, is a file that git keeps open until it ends.
	Inherits *os.File
}

// A RefusedError says that git has failed to move refs. It has moved none of them unless Begun.
type RefusedError struct {
	Reason string // git's message, in one line
	// Begun: git had all its locks, and has moved some of the refs or none.
	Begun bool
	// Locked: another process has a lock file that git needs. AllLocked: the file is one that any
	// part of the transaction would need.
	Locked, AllLocked bool
}

func (e *RefusedError) Error() string { return e.Reason }

// ConfiguredHooks returns the names of the hooks that git's configuration defines (hook.NAME.event;
// git 2.54 and later).
func (r *Repo) ConfiguredHooks(ctx context.Context) (names []string, err error) {
	out, err := r.Command(ctx, "config", "--null", "--name-only", "--get-regexp", `^hook\..*\.event$`).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the hooks in the configuration of %q: %w", r.path, Failure(ctx, err))
	}
	for key := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(key, "hook."), ".event"))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// MoveRefs moves refs in one git transaction. If one of them does not hold its value From, or can't
// be moved, the error is a *RefusedError. When ctx ends, git gets time to remove its lock files.
func (r *Repo) MoveRefs(ctx context.Context, moves []Move, how Unhooked) error {
	return r.updateRefs(ctx, moves, how, "commit\x00")
}

// TryMoves makes git prepare what [Repo.MoveRefs] would do, and moves nothing.
func (r *Repo) TryMoves(ctx context.Context, moves []Move, how Unhooked) error {
	return r.updateRefs(ctx, moves, how, "abort\x00")
}

func (r *Repo) updateRefs(ctx context.Context, moves []Move, how Unhooked, end string) error {
	cmd := r.unhooked(ctx, how, waiting(0, how.LockWait), "update-ref", "--no-deref", "--stdin", "-z")
	cmd.Stdin = bytes.NewReader(transaction(moves, end))
	if err := refused(cmd); err != nil {
		return fmt.Errorf("moving refs: %w", err)
	}
	return nil
}

// transaction returns the input of git update-ref for a transaction that is prepared and then ended.
// Git aborts a transaction whose end it does not read, as when this process is killed meanwhile.
func transaction(moves []Move, end string) []byte {
	var in bytes.Buffer
	in.WriteString("start\x00")
	for _, m := range moves {
		switch {
		case m.To == "":
			fmt.Fprintf(&in, "delete %s\x00%s\x00", m.Ref, m.From)
		case m.From == "":
			fmt.Fprintf(&in, "create %s\x00%s\x00", m.Ref, m.To)
		default:
			fmt.Fprintf(&in, "update %s\x00%s\x00%s\x00", m.Ref, m.To, m.From)
		}
	}
	in.WriteString("prepare\x00" + end)
	return in.Bytes()
}

// headWait is how long git waits for the lock file of HEAD: as long as it does by default. A push to
// the branch that HEAD points to holds that file, too.
const headWait = 100 * time.Millisecond

// SetHead makes HEAD point to a ref. If another process has the lock file of HEAD for long, the error
// is a *RefusedError.
func (r *Repo) SetHead(ctx context.Context, target string, how Unhooked) error {
	if err := refused(r.unhooked(ctx, how, waiting(headWait, headWait), "symbolic-ref", "HEAD", target)); err != nil {
		return fmt.Errorf("changing HEAD of %q: %w", r.path, err)
	}
	return nil
}

// waiting returns options of git that limit how long it waits for a ref's lock file, and for one that
// all refs need.
func waiting(ref, all time.Duration) []string {
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return []string{
		"-c", "core.filesRefLockTimeout=" + milliseconds(ref),
		"-c", "core.packedRefsTimeout=" + milliseconds(all), "-c", "reftable.lockTimeout=" + milliseconds(all),
	}
}

// unhooked returns a git command that runs no hooks, and so starts no process that would inherit the
// file, too. Config are options of git itself.
func (r *Repo) unhooked(ctx context.Context, how Unhooked, config []string, command string, args ...string) *exec.Cmd {
	if how.Message != "" {
		args = append([]string{"-m", how.Message}, args...)
	}
	cmd := r.Command(ctx, slices.Concat([]string{"-c", "core.hooksPath=/dev/null"}, config, []string{command}, args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if how.Inherits != nil {
		cmd.ExtraFiles = []*os.File{how.Inherits}
	}
	// Not by -c: a name may contain "=".
	n, _ := strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT"))
	for _, name := range how.Hooks {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=hook.%s.enabled", n, name), fmt.Sprintf("GIT_CONFIG_VALUE_%d=false", n))
		n++
	}
	if len(how.Hooks) > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	}
	return cmd
}

// refused runs cmd. The error is a *RefusedError unless git could not be run, or was killed: then git
// has refused nothing.
func refused(cmd *exec.Cmd) error {
	_, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || !exit.Exited() {
		return err
	}
	stderr := string(exit.Stderr)
	e := &RefusedError{Reason: strings.TrimPrefix(ErrorLine(stderr), "prepare: ")}
	e.Reason, e.Begun = strings.CutPrefix(e.Reason, "commit: ")
	if e.Reason == "" {
		e.Reason = "git: " + exit.Error()
	}
	// In a reftable all refs have one lock file.
	reftable := strings.Contains(stderr, "data is locked") || strings.Contains(stderr, "data concurrently modified")
	e.Locked = reftable || strings.Contains(stderr, ".lock': File exists")
	// Of the file of a branch with such a name, git says that it cannot lock the ref.
	ofAll := strings.Contains(stderr, "/packed-refs.lock'") || strings.Contains(stderr, "/tables.list.lock'")
	e.AllLocked = reftable || e.Locked && ofAll && !strings.Contains(stderr, "cannot lock ref ")
	return e
}
