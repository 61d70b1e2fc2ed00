//go:build linux

package sites

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// A target is a ref of a project.
type target struct{ project, ref string }

// A journal is what the clients were told.
type journal struct {
	start time.Time

	mu      sync.Mutex
	moves   map[target][]*move
	pushes  int
	count   map[outcome]int
	why     map[string]int           // reasons of refusals
	jobs    map[string]int           // how background jobs ended
	latest  map[string]time.Duration // by site: the latest start of a push with something acknowledged
	turned  map[string]time.Duration // by site: the latest start of one with something refused
	slowest time.Duration

	listener func(site string, moves map[string]*move, p push) // hears of each push
}

func newJournal() *journal {
	return &journal{start: time.Now(), moves: make(map[target][]*move), count: make(map[outcome]int),
		why: make(map[string]int), jobs: make(map[string]int), latest: make(map[string]time.Duration), turned: make(map[string]time.Duration)}
}

func (j *journal) now() time.Duration { return time.Since(j.start) }

// record notes a push to a site: its moves by ref, and what its client was told.
func (j *journal) record(site, project string, moves map[string]*move, p push) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pushes++
	for ref, m := range moves {
		m.outcome = p.outcome(ref)
		at := target{project, ref}
		j.moves[at] = append(j.moves[at], m)
		j.count[m.outcome]++
		j.slowest = max(j.slowest, m.end-m.start)
		switch m.outcome {
		case acknowledged:
			j.latest[site] = max(j.latest[site], m.start)
		case refused:
			j.turned[site] = max(j.turned[site], m.start)
			j.why[p.reason[ref]]++
		}
	}
	if j.listener != nil {
		j.listener(site, moves, p)
	}
}

// job notes how a background job ended. During a fault it may fail.
func (j *journal) job(name string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		name += " failed"
	}
	j.jobs[name]++
}

// accepts reports whether a push that started at that time, or later, was acknowledged by the site.
func (j *journal) accepts(site string, since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.latest[site] > since
}

// first returns the end of the first push that started at that time, or later, and was acknowledged by the site.
func (j *journal) first(site string, since time.Duration) (end time.Duration, told bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, moves := range j.moves {
		for _, m := range moves {
			if m.outcome == acknowledged && m.start > since && strings.HasSuffix(m.where, " at "+site) && (!told || m.end < end) {
				end, told = m.end, true
			}
		}
	}
	return end, told
}

// refuses reports whether a push that started at that time, or later, was refused by the site.
func (j *journal) refuses(site string, since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.turned[site] > since
}

func (j *journal) acknowledged() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count[acknowledged]
}

// of is for a reader.
func (j *journal) of(at target) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, m := range j.moves[at] {
		all = append(all, m.String())
	}
	return strings.Join(all, "\n\t")
}

// outcome returns what the client was told of a ref.
func (p push) outcome(ref string) outcome {
	switch flag, told := p.status[ref]; {
	case !told, strings.Contains(p.reason[ref], "failed to report status"):
		return unknown
	case flag == '!', flag == '=':
		return refused
	}
	return acknowledged
}

// chaosRefs are few, so that pushers collide. HEAD points to the first, which git
// lets nobody delete.
var chaosRefs = [...]string{"refs/heads/main", "refs/heads/topic", "refs/tags/latest"}

// A pusher pushes to both sites, one push after the other. It pushes new values that
// nobody else pushes.
type pusher struct {
	c      *chaos
	number int
	random *rand.Rand
	count  int
}

func (p *pusher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.push(ctx); err != nil && ctx.Err() == nil {
			p.c.Errorf("pusher %d: %v", p.number, err)
			return
		}
		pauseFor(ctx, p.c.size.rest)
	}
}

// push makes one push, of one ref or several.
func (p *pusher) push(ctx context.Context) error {
	s := p.c.sites[p.random.IntN(2)]
	project := p.c.projects[p.random.IntN(len(p.c.projects))]
	refs := slices.Clone(chaosRefs[:])
	p.random.Shuffle(len(refs), func(i, k int) { refs[i], refs[k] = refs[k], refs[i] })
	args := []string{"push", "--porcelain", "--no-verify", s.repo(project)}
	if p.random.IntN(3) > 0 {
		refs = refs[:1]
	} else if p.random.IntN(2) == 0 {
		args = append(args, "--atomic")
	}
	refs, values, err := p.c.leftLocks.unlocked(ctx, s.repo(project), refs)
	if len(refs) == 0 {
		return err
	}
	mayDelete := !p.c.leftLocks.locked(s.repo(project), "packed-refs")
	moves := make(map[string]*move)
	for _, ref := range refs {
		m := &move{old: values[ref], where: fmt.Sprintf("by %d at %s", p.number, s.name)}
		switch dice := p.random.IntN(20); {
		case m.old == "" || dice < 4:
			m.new, err = p.commit(ctx, p.c.h.a) // no descendant
		case dice < 7 && mayDelete && ref != chaosRefs[0]:
		default:
			m.new, err = p.commit(ctx, m.old)
		}
		if err != nil {
			return err
		}
		moves[ref] = m
		// The lease checks the old value. If it holds, it forces as well.
		args = append(args, "--force-with-lease="+ref+":"+m.old, m.new+":"+ref)
	}
	start := p.c.journal.now()
	told, err := p.git(args)
	if err != nil {
		return err
	}
	for _, m := range moves {
		m.start, m.end = start, p.c.journal.now()
	}
	p.c.journal.record(s.name, project, moves, told)
	p.c.leftLocks.note(told)
	return nil
}

// git runs git push, which may fail.
func (p *pusher) git(args []string) (push, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := p.c.g.commandContext(ctx, p.c.h.dir, args...)
	out, said := newOutput(p.c.TB), newOutput(p.c.TB)
	defer out.file.Close()
	defer said.file.Close()
	cmd.Stdout, cmd.Stderr = out.file, said.file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if ctx.Err() != nil {
		return push{}, fmt.Errorf("git %q does not end: %s", args, said)
	}
	return readPush(err == nil, out.String(), said.String()), nil
}

// commit makes a unique commit.
func (p *pusher) commit(ctx context.Context, parent string) (string, error) {
	p.count++
	out, err := p.c.g.commandContext(ctx, p.c.h.dir, "commit-tree", "-p", parent, "-m",
		fmt.Sprintf("%d of pusher %d", p.count, p.number), p.c.tree).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("commit-tree on %s: %w: %s", parent, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// leftLocks are lock files that killed processes of git have left. A push there would
// wait long and in vain, so pushers avoid them until they are cleaned up.
type leftLocks struct {
	mu    sync.Mutex
	known map[string]bool // lock files
	seen  int
}

var lockFilePattern = regexp.MustCompile(`Unable to create '([^']+\.lock)': File exists`)

// note notes the lock files that a push has found.
func (l *leftLocks) note(p push) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, found := range lockFilePattern.FindAllStringSubmatch(p.said, -1) {
		if file := found[1]; !l.known[file] {
			l.known[file] = true
			l.seen++
		}
	}
}

// locked reports whether a file of a repository is known to be locked.
func (l *leftLocks) locked(repo, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[filepath.Join(repo, name+".lock")]
}

// unlocked returns those of refs that have no such lock, and their values.
func (l *leftLocks) unlocked(ctx context.Context, path string, refs []string) (some []string, values map[string]string, err error) {
	some = slices.DeleteFunc(refs, func(ref string) bool { return l.locked(path, ref) })
	repo, err := gitrepo.OpenDir(path)
	if err == nil && len(some) > 0 {
		values, err = repo.Values(ctx, some)
	}
	if err != nil {
		return nil, nil, err
	}
	return some, values, nil
}

// forget forgets lock files that are gone, and returns how many are left.
func (l *leftLocks) forget() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.known, func(file string, _ bool) bool {
		_, err := os.Lstat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
	return len(l.known)
}
