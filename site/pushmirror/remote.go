package pushmirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/redact"
)

const (
	// listLimit and pushLimit are the longest times that git may take to list the refs of a
	// repository, and to push to it.
	listLimit = 5 * time.Minute
	pushLimit = time.Hour
	// listedRefs is the maximum number of refs that are listed by name.
	listedRefs = 100
	// refsPerPush is the maximum number of refs in one push, which are arguments of git.
	refsPerPush = 500
	// comparisons is the maximum number of comparisons in one push: git compares each lease with
	// each ref of the mirror, and needs about a second for a million.
	comparisons = 2_000_000
	// lineLimit and messagesLimit are the maximum lengths of a line of git's output, and of the
	// messages that are kept.
	lineLimit, messagesLimit = 64 << 10, 64 << 10
)

// unpackerError is git's result for every ref of a push if one object could not be sent or stored.
const unpackerError = "(unpacker error)"

// A move moves a ref at the mirror, from the value that was listed; "" stands for no ref.
type move struct{ ref, from, to string }

// A remote is the repository of a project at a mirror.
type remote struct {
	repo *gitrepo.Repo
	url  string
}

// A listing is what a mirror has.
type listing struct {
	values map[string]string // of the refs that are pushed, at least of the named ones
	// shadows are refs that git push would move in place of the refs they are listed by.
	shadows map[string]string
	size    int // the number of refs that the mirror showed
}

// list lists the refs of the mirror; names is nil for all refs.
func (r remote) list(ctx context.Context, names []string, pushed func(ref string) bool) (listing, error) {
	args := []string{"ls-remote", "--quiet", "--refs", "--", r.url}
	if len(names) <= listedRefs {
		args = append(args, names...) // and what ends in them
	}
	all := listing{values: map[string]string{}, shadows: map[string]string{}}
	err := r.git(ctx, listLimit, args, func(line string) {
		all.size++
		id, ref, _ := strings.Cut(line, "\t")
		if pushed(ref) {
			all.values[ref] = id
		}
		if meant := shadowed(ref); pushed(meant) {
			all.shadows[meant] = ref
		}
	})
	if err != nil {
		return listing{}, fmt.Errorf("listing the refs of %s: %w: check that the repository exists, and that the daemon's user may push to it", redact.Text(r.url, r.url), err)
	}
	return all, nil
}

// shadowed returns the name of the ref for which git push would move the given ref of the mirror
// instead; "" if there is no such name. See the rules in gitrevisions(7).
func shadowed(ref string) string {
	for _, prefix := range []string{"refs/tags/", "refs/heads/", "refs/remotes/", "refs/"} {
		if meant, ok := strings.CutPrefix(ref, prefix); ok && strings.HasPrefix(meant, "refs/") {
			return strings.TrimSuffix(meant, "/HEAD")
		}
	}
	return ""
}

// push moves refs of a mirror that has size refs, each unless it has moved since it was listed. It
// returns the refs that were not moved, and the reason for one of them.
func (r remote) push(ctx context.Context, moves []move, size int) (failed []string, err error) {
	slices.SortFunc(moves, func(a, b move) int { return strings.Compare(a.ref, b.ref) })
	atOnce := max(1, min(refsPerPush, comparisons/(size+len(moves)+1)))
	for i := 0; i < len(moves); {
		part := moves[i:min(i+atOnce, len(moves))]
		unknown, refused, failure := r.pushOnce(ctx, part)
		if len(unknown) > 0 && len(part) > 1 && ctx.Err() == nil {
			// One of the refs may be why git gave up.
			atOnce = len(part) / 2
			continue
		}
		i += len(part)
		failed = append(append(failed, refused...), unknown...)
		if failure != nil {
			err = failure
		}
		if len(unknown) > 0 && i < len(moves) {
			// The mirror may be away: the caller tries again after a pause.
			if next, _, _ := r.pushOnce(ctx, moves[i:i+1]); len(next) > 0 {
				for _, m := range moves[i:] {
					failed = append(failed, m.ref)
				}
				return failed, err
			}
		}
	}
	return failed, err
}

// pushOnce is push by one git process. Unknown are the refs about which git did not report a
// result, and refused those that git or the mirror refused to move.
func (r remote) pushOnce(ctx context.Context, moves []move) (unknown, refused []string, err error) {
	args := []string{"-c", "push.pushOption=", "push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--no-recurse-submodules"}
	for _, m := range moves {
		args = append(args, "--force-with-lease="+m.ref+":"+m.from)
	}
	args = append(args, "--", r.url)
	left := map[string]bool{}
	for _, m := range moves {
		args = append(args, m.to+":"+m.ref)
		left[m.ref] = true
	}
	reason := ""
	err = r.git(ctx, pushLimit, args, func(line string) {
		// See "OUTPUT" in git-push(1).
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) < 3 {
			return
		}
		ref := fields[1][strings.IndexByte(fields[1], ':')+1:]
		if !left[ref] || strings.HasSuffix(fields[2], unpackerError) { // it is about the whole push
			return
		}
		delete(left, ref)
		if fields[0] == "!" {
			refused = append(refused, ref)
			reason = ref + ": " + fields[2]
		}
	})
	for _, m := range moves {
		if left[m.ref] {
			unknown = append(unknown, m.ref)
		}
	}
	switch {
	case len(unknown) > 0 && err == nil:
		err = errors.New("git has not reported the result")
		fallthrough
	case len(unknown) > 0:
		err = fmt.Errorf("pushing %s: %w", unknown[0], err)
	case len(refused) > 0:
		err = errors.New(redact.Text(reason, r.url))
	default:
		err = nil // every ref was moved, whatever git says
	}
	return unknown, refused, err
}

// git runs git, which has no terminal to ask for a password at. Each is called with each line of its
// output.
func (r remote) git(ctx context.Context, limit time.Duration, args []string, each func(line string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("git did not end within %s", limit))
	defer cancel()
	cmd := r.repo.Command(ctx, args...)
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0")
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	messages := &beginning{left: messagesLimit}
	cmd.Stdout, cmd.Stderr = &lines{each: each}, messages
	err := cmd.Run()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that git has left, such as ssh
	}
	switch exit := (*exec.ExitError)(nil); {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // git has succeeded
		return nil
	case errors.As(err, &exit):
		exit.Stderr = messages.Bytes()
	}
	return errors.New(redact.Text(gitrepo.Failure(ctx, err).Error(), r.url))
}

// A lines calls each with each line that is written to it.
type lines struct {
	each func(line string)
	rest []byte // of a line that has not ended
}

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, after, ended := bytes.Cut(p, []byte{'\n'})
		if len(l.rest)+len(line) > lineLimit {
			return 0, fmt.Errorf("git wrote a line of more than %d bytes", lineLimit)
		}
		l.rest = append(l.rest, line...)
		if !ended {
			return n, nil
		}
		l.each(string(l.rest))
		l.rest, p = l.rest[:0], after
	}
}

// A beginning keeps the beginning of what is written to it.
type beginning struct {
	bytes.Buffer
	left int
}

func (b *beginning) Write(p []byte) (int, error) {
	keep := min(len(p), b.left)
	b.left -= keep
	b.Buffer.Write(p[:keep])
	return len(p), nil
}
