package pushmirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// listLimit and pushLimit bound how long git may take to list a mirror's refs, and to push.
	listLimit = 2 * time.Minute
	pushLimit = time.Hour
	// refsPerPush bounds the arguments of git.
	refsPerPush = 500
	// listedRefs is how many refs are listed by name.
	listedRefs = 100
)

// A move is a move of a ref at the mirror, from the value that it was seen to have there; "" is none.
type move struct{ ref, from, to string }

// push pushes what is to be pushed of a project, and returns what is left.
func (t *term) push(ctx context.Context, project string, w work) (left work, err error) {
	if p, ok := t.Projects.Get(project); ok && !t.pushes(p) {
		return work{}, nil
	}
	if err := t.sharesAddress(project); err != nil {
		return w, err
	}
	if err := t.MayAct(ctx); err != nil {
		return w, err
	}
	c, r, err := t.Copy(ctx, project)
	if err != nil {
		return w, err
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return w, err
	}
	pushed := func(ref string) bool { return t.config.PushesRef(ref) && c.Guards(project, ref) }
	var names []string // of refs; nil for all
	if !w.all {
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(w.refs)), func(ref string) bool { return !pushed(ref) })
		if len(names) == 0 {
			return work{}, nil
		}
	}
	// The mirror first: if this process is stopped and goes on late, what it knows of the mirror is old, and
	// nothing is moved.
	at := remote{repo, t.config.Address(project)}
	there, err := at.list(ctx, names)
	if err != nil {
		return w, err
	}
	rows, err := t.rows(ctx, project, names, pushed)
	if err != nil {
		return w, err
	}
	here, err := repo.Values(ctx, slices.Sorted(maps.Keys(rows)))
	if err != nil {
		return w, err
	}
	left, deletions, others := work{refs: map[string]bool{}}, []move{}, []move{}
	for ref, value := range rows {
		switch has := there[ref]; {
		case value.IsDeleted() && has == "", string(value) == has:
		case value.IsDeleted():
			deletions = append(deletions, move{ref, has, ""})
		case here[ref] != string(value): // only what the copy's refs reach is sure to be whole
			left.refs[ref], err = true, fmt.Errorf("%s: this site has not followed the database yet", ref)
		default:
			others = append(others, move{ref, has, string(value)})
		}
	}
	// A name may take the place of another one that excludes it.
	for moves := range chunks(deletions, others) {
		failed, failure := at.push(ctx, moves)
		maps.Copy(left.refs, failed)
		if failure != nil {
			err = failure
		}
	}
	if len(left.refs) == 0 {
		return work{}, err
	}
	return left, err
}

// sharesAddress returns an error if another project has the same repository at the mirror.
func (t *term) sharesAddress(project string) error {
	if !t.config.MayShare() {
		return nil
	}
	for _, p := range t.Projects.All() {
		if other := p.Project.Project; other != project && t.pushes(p) && t.config.Address(other) == t.config.Address(project) {
			return fmt.Errorf("%s has the same address at the mirror: nothing is pushed of either: use {project} in pushMirror.%s.url, or leave one out", other, t.config.Name)
		}
	}
	return nil
}

// rows returns what the database has for the refs, or for all, that are pushed. A ref that the database never had
// is the mirror's own.
func (t *term) rows(ctx context.Context, project string, names []string, pushed func(ref string) bool) (map[string]refdb.Value, error) {
	rows := map[string]refdb.Value{}
	add := func(row refdb.Ref) {
		if pushed(row.Name) && (row.Value.IsDeleted() || row.Value.IsObjectID()) {
			rows[row.Name] = row.Value
		}
	}
	if names == nil {
		for row, err := range t.DB.Refs(ctx, project, "refs/", refdb.IncludeDeleted()) {
			if err != nil {
				return nil, err
			}
			add(row)
		}
		return rows, nil
	}
	all, err := t.DB.GetAll(ctx, project, names...)
	for _, row := range all {
		add(row)
	}
	return rows, err
}

// chunks iterates over the moves of several lists, each list after the other.
func chunks(lists ...[]move) func(yield func([]move) bool) {
	return func(yield func([]move) bool) {
		for _, list := range lists {
			slices.SortFunc(list, func(a, b move) int { return strings.Compare(a.ref, b.ref) })
			for part := range slices.Chunk(list, refsPerPush) {
				if !yield(part) {
					return
				}
			}
		}
	}
}

// A remote is a project's repository at a mirror.
type remote struct {
	repo *gitrepo.Repo
	url  string
}

// list returns the values of the mirror's refs, at least of those that are named; nil names all.
func (r remote) list(ctx context.Context, refs []string) (map[string]string, error) {
	args := []string{"ls-remote", "--quiet", "--refs", "--", r.url}
	if len(refs) <= listedRefs {
		args = append(args, refs...)
	}
	out, err := r.git(ctx, listLimit, args...)
	if err != nil {
		return nil, fmt.Errorf("listing the mirror's refs: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if id, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			values[ref] = id
		}
	}
	return values, nil
}

// push moves refs of the mirror, each unless it has moved meanwhile. It returns the refs that were not
// moved, and why one of them was not.
func (r remote) push(ctx context.Context, moves []move) (failed map[string]bool, err error) {
	args := []string{"push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--no-recurse-submodules"}
	for _, m := range moves {
		args = append(args, "--force-with-lease="+m.ref+":"+m.from)
	}
	args = append(args, "--", r.url)
	failed = map[string]bool{}
	for _, m := range moves {
		args = append(args, m.to+":"+m.ref)
		failed[m.ref] = true
	}
	out, err := r.git(ctx, pushLimit, args...)
	refused := ""
	for line := range strings.Lines(out) {
		// See "OUTPUT" in git-push(1).
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(fields) < 3 {
			continue
		}
		ref := fields[1][strings.IndexByte(fields[1], ':')+1:]
		if fields[0] != "!" {
			delete(failed, ref)
		} else if refused == "" {
			refused = ref + ": " + fields[2]
		}
	}
	switch {
	case len(failed) == 0:
		return nil, nil
	case refused != "":
		return failed, fmt.Errorf("%d refs were not moved: %s", len(failed), refused)
	case err == nil:
		err = errors.New("git has not said what it moved")
	}
	return failed, fmt.Errorf("pushing: %w", err)
}

// git runs a git that asks nobody for a password, and returns what it prints.
func (r remote) git(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("git did not end within %s", limit))
	defer cancel()
	cmd := r.repo.Command(ctx, args...)
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal ssh can't ask either
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		exit.Stderr = complaints.Bytes()
	}
	if err != nil {
		err = errors.New(redact.Text(gitrepo.Failure(ctx, err).Error(), r.url))
	}
	return out.String(), err
}
