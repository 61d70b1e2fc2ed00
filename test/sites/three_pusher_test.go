//go:build linux

package sites

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A trioPusher pushes to three sites, one push after the other. It may be killed at any moment.
type trioPusher struct {
	x      *trio
	number int
	random *rand.Rand
	only   *trioSite // the site that it pushes to, only refs of its own; nil for all
	count  int
	own    map[string][]string // by project: refs that it made for itself
}

func (p *trioPusher) run(ctx context.Context) {
	p.own = make(map[string][]string)
	for ctx.Err() == nil {
		s := p.only
		if s == nil {
			s = p.x.sites[p.random.IntN(len(p.x.sites))]
		}
		if s.isLost() {
			if !pauseFor(ctx, 10*time.Millisecond) {
				return
			}
			continue
		}
		if err := p.push(ctx, s); err != nil && ctx.Err() == nil && !s.isLost() {
			p.x.Errorf("pusher %d at %s: %v", p.number, s.name, err)
			return
		}
		if p.x.size.rest > 0 && !pauseFor(ctx, p.x.size.rest) {
			return
		}
	}
}

// refs returns the refs of a push: one or all of those that all pushers push to, or refs of its own, old ones and new ones.
func (p *trioPusher) refs(project string) []string {
	refs := slices.Clone(chaosRefs[:])
	p.random.Shuffle(len(refs), func(i, k int) { refs[i], refs[k] = refs[k], refs[i] })
	switch dice := p.random.IntN(10); {
	case p.only != nil:
	case dice < 5:
		return refs[:1]
	case dice < 7:
		return refs
	}
	own := p.own[project]
	if len(own) > 0 && p.random.IntN(3) == 0 {
		return []string{own[p.random.IntN(len(own))]}
	}
	p.count++
	kind := []string{"refs/heads/topics", "refs/tags/v"}[p.random.IntN(2)]
	p.own[project] = append(own, fmt.Sprintf("%s/%d/%d", kind, p.number, p.count))
	return p.own[project][len(own):]
}

// push makes one push.
func (p *trioPusher) push(ctx context.Context, s *trioSite) error {
	project := p.x.projects[p.random.IntN(len(p.x.projects))]
	refs := p.refs(project)
	args := []string{"push", "--porcelain", "--no-verify", s.repo(project)}
	if len(refs) > 1 && p.random.IntN(2) == 0 {
		args = append(args, "--atomic")
	}
	refs, values, err := p.x.locks.unlocked(ctx, s.repo(project), refs)
	if len(refs) == 0 {
		return err
	}
	mayDelete := !p.x.locks.locked(s.repo(project), "packed-refs")
	moves := make(map[string]*move)
	for _, ref := range refs {
		m := &move{old: values[ref], where: fmt.Sprintf("by %d at %s", p.number, s.name)}
		switch dice := p.random.IntN(20); {
		case dice < 3 && m.old != "" && mayDelete && ref != chaosRefs[0]:
		case m.old == "" || dice < 7:
			m.new, err = p.value(ctx, ref, p.anyValue(project)) // no descendant, and perhaps of what no ref has any more
		default:
			m.new, err = p.value(ctx, ref, m.old)
		}
		if err != nil {
			return err
		}
		moves[ref] = m
		args = append(args, "--force-with-lease="+ref+":"+m.old, m.new+":"+ref)
	}
	start := p.x.journal.now()
	told, err := p.git(args)
	if err != nil {
		return err
	}
	for _, m := range moves {
		m.start, m.end = start, p.x.journal.now()
	}
	p.x.journal.record(s.name, project, moves, told)
	p.x.locks.note(told)
	p.x.pushed(project, moves)
	return nil
}

// pushed notes what others may build on.
func (x *trio) pushed(project string, moves map[string]*move) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for m := range maps.Values(moves) {
		if m.new != "" {
			x.values[project] = append(x.values[project], m.new)
		}
	}
	if n := len(x.values[project]); n > 20 {
		x.values[project] = slices.Clone(x.values[project][n-20:])
	}
}

// anyValue returns something that was pushed lately.
func (p *trioPusher) anyValue(project string) string {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	if all := p.x.values[project]; len(all) > 0 {
		return all[p.random.IntN(len(all))]
	}
	return p.x.h.a
}

// value makes a unique commit, or an annotated tag of one.
func (p *trioPusher) value(ctx context.Context, ref, parent string) (string, error) {
	p.count++
	name := fmt.Sprintf("%d of pusher %d", p.count, p.number)
	content := make([]byte, p.bytes())
	_, _ = crand.Read(content) // it never fails
	blob, err := p.make(ctx, content, "-c", "core.compression=0", "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	tree, err := p.make(ctx, []byte("100644 blob "+blob+"\tfile\n"), "mktree")
	if err != nil {
		return "", err
	}
	id, err := p.make(ctx, []byte(name), "commit-tree", "-p", parent+"^{commit}", tree)
	if err == nil && strings.HasPrefix(ref, "refs/tags/v") {
		text := fmt.Sprintf("object %s\ntype commit\ntag %d\ntagger T <t@example.com> 1700000000 +0000\n\n%s\n", id, p.count, name)
		id, err = p.make(ctx, []byte(text), "hash-object", "-t", "tag", "-w", "--stdin")
	}
	return id, err
}

// bytes returns how large a push is: mostly small, seldom the largest.
func (p *trioPusher) bytes() int {
	most := [...]int{10, 1000, 1000, 1000, 1000, 10_000, 10_000, 100_000}[p.random.IntN(8)]
	switch dice := p.random.IntN(100); {
	case dice == 0:
		most = p.x.size.largest
	case dice < 5:
		most = 1 << 20
	}
	return int(math.Pow(float64(most), p.random.Float64()))
}

// make runs a git that makes an object in the clients' repository.
func (p *trioPusher) make(ctx context.Context, input []byte, args ...string) (string, error) {
	cmd := p.x.g.commandContext(ctx, p.x.h.dir, args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %q: %w: %s", args, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// git runs git push in a process group of its own, which may be killed.
func (p *trioPusher) git(args []string) (push, error) {
	cmd := p.x.g.command(p.x.h.dir, args...)
	out, said := newOutput(p.x.TB), newOutput(p.x.TB)
	defer out.file.Close()
	defer said.file.Close()
	cmd.Stdout, cmd.Stderr = out.file, said.file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return push{}, err
	}
	group := cmd.Process.Pid
	p.x.client(group, true)
	stalled := time.AfterFunc(patience, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	err := cmd.Wait()
	p.x.client(group, false)
	if !stalled.Stop() {
		return push{}, fmt.Errorf("git %q does not end: %s", args, said)
	}
	// If the client was killed alone, git goes on at the site. The push is over when that has ended.
	for deadline := time.Now().Add(patience); groupRuns(group); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return push{}, fmt.Errorf("what git %q began does not end", args)
		}
	}
	return readPush(err == nil, out.String(), said.String()), nil
}

func (x *trio) client(group int, runs bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if runs {
		x.pushing[group] = true
	} else {
		delete(x.pushing, group)
	}
}

// groupRuns reports whether a process group has a process that has not ended.
func groupRuns(group int) bool {
	if err := syscall.Kill(-group, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if fields, err := stat(pid); err == nil && fields[2] == fmt.Sprint(group) && fields[0] != "Z" {
			return true
		}
	}
	return false
}
