//go:build linux

package sites

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// A trioSite is one of three sites. Its disk may be lost.
type trioSite struct {
	*server
	trio   *trio
	link   *slowLink // nil on SQLite
	number int

	mu   sync.Mutex
	lost bool // its disk or its machine, and it is not back yet: clients leave it alone
}

func (s *trioSite) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *trioSite) setLost(lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost
}

// losesDisk kills all of the site's processes, and removes its repositories and its state.
func (s *trioSite) losesDisk() error {
	s.setLost(true)
	gone := s.root + ".lost"
	// No git finds a repository any more. One that has found its own goes on in it, as on no disk that is lost: then
	// it needs the site's hooks, which stay until it has been killed.
	if err := os.Mkdir(gone, 0o755); err != nil {
		return err
	}
	all, err := os.ReadDir(s.root)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Name() == config.HooksDir {
			continue
		}
		if err := os.Rename(filepath.Join(s.root, e.Name()), filepath.Join(gone, e.Name())); err != nil {
			return err
		}
	}
	if err := s.killAll(); err != nil {
		return err
	}
	// A git that was about to write a ref has made directories again.
	return errors.Join(os.RemoveAll(gone), os.RemoveAll(s.root), os.RemoveAll(filepath.Join(s.dir, "state")), os.Mkdir(s.root, 0o755))
}

// killAll kills all of the site's processes.
func (s *trioSite) killAll() error {
	s.kill()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left := processesIn(s.dir)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of %s can't be killed: %v", s.name, left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// comesBack makes the site anew from the database.
func (s *trioSite) comesBack() error {
	if err := s.takesOver(); err != nil {
		return err
	}
	if err := s.tryStart(); err != nil {
		return err
	}
	err := s.again(func() error {
		// What it had let through counts as made, also if its client was told otherwise.
		for i, err := range s.trio.db.Intents().All(s.trio.background(), driver.IntentFilter{Owner: s.name}) {
			if err != nil {
				return err
			}
			m := move{old: plainValue(i.Old), new: plainValue(i.New)}
			s.trio.mu.Lock()
			s.trio.doubtful[m] = true
			s.trio.mu.Unlock()
		}
		_, err := s.run("site", "clone", "--all")
		return err
	})
	if err == nil {
		err = s.again(func() error {
			status, err := s.status()
			if err == nil && len(status.Stuck) > 0 {
				err = fmt.Errorf("stuck: %+v", status.Stuck)
			}
			return err
		})
	}
	if err == nil {
		s.setLost(false)
	}
	return err
}

// takesOver makes a new state the site's. It is refused until the lock of the daemon that was killed is stale. If the
// database's server was started anew meanwhile, all wait for what this site knew, and that is gone, too.
func (s *trioSite) takesOver() error {
	return s.again(func() error {
		_, err := s.run("site", "take-over", "--yes")
		if err == nil || !strings.Contains(err.Error(), "refdbctl recover --status") {
			return err
		}
		a, failed := s.trio.db.Recovery().Admission(s.trio.background())
		if failed != nil {
			return failed
		}
		args := []string{"recover", "--reason", "the disk is lost", "-y"}
		for _, one := range s.trio.sites {
			if one.isLost() && slices.Contains(a.Waiting(), one.name) {
				args = append(args, "--without", one.name)
			}
		}
		_, failed = s.run(args...)
		return errors.Join(err, failed)
	})
}

// again tries something until it is done. The database may be away for a while.
func (s *trioSite) again(do func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func plainValue(v refdb.Value) string {
	if v.IsDeleted() || !v.IsObjectID() {
		return ""
	}
	return string(v)
}

// processesIn returns the processes that work in a directory or below it.
func processesIn(dir string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		cwd = strings.TrimSuffix(cwd, " (deleted)")
		if err != nil || cwd != dir && !strings.HasPrefix(cwd, dir+"/") {
			continue
		}
		if fields, err := stat(pid); err == nil && fields[0] != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// maintains lets the site be maintained all the time, and checked now and then. During a fault it may fail.
func (s *trioSite) maintains(ctx context.Context, random *rand.Rand) {
	for pauseFor(ctx, 300*time.Millisecond) {
		if s.isLost() {
			continue
		}
		s.maintainsOne(random)
	}
}

func (s *trioSite) maintainsOne(random *rand.Rand) {
	s.trio.commands.RLock()
	defer s.trio.commands.RUnlock()
	project := s.trio.projects[random.IntN(len(s.trio.projects))]
	switch random.IntN(6) {
	case 0:
		_, err := s.run("site", "check", "--repair")
		s.trio.job("check", err)
		s.trio.locks.forget()
	case 1:
		_, err := s.run("site", "maintain")
		s.trio.job("maintain all", err)
	default:
		// Git prunes what is two weeks old: here what is half a minute old.
		old := exec.Command("find", filepath.Join(s.repo(project), "objects"), "-type", "f", "-not", "-newermt", "30 seconds ago", "-exec", "touch", "-d", "40 days ago", "{}", "+")
		_ = old.Run() // files may go meanwhile
		out, err := s.run("site", "maintain", "-o", "json", project)
		s.trio.job("maintain", err)
		if err == nil && !strings.Contains(out, `"pruned": 0`) {
			s.trio.journal.job("prune", nil)
		}
	}
}

// job notes how a command ended. During a fault it may fail.
func (x *trio) job(name string, err error) {
	x.journal.job(name, err)
	if err != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.failures[name] = err.Error()
	}
}

// listens reads what the daemon asks an operator to do. It must ask for nothing, not even for a moment.
func (s *trioSite) listens(ctx context.Context) {
	reported := make(map[string]bool)
	for pauseFor(ctx, 100*time.Millisecond) {
		if s.isLost() {
			continue
		}
		status, err := s.status()
		if err != nil || s.isLost() {
			continue
		}
		for _, stuck := range status.Stuck {
			if text := fmt.Sprintf("%s of %s: %s", stuck.Ref, stuck.Project, stuck.Reason); !reported[text] {
				reported[text] = true
				s.trio.Errorf("%s asks for an operator at %s: %s\nmoves:\n\t%s", s.name, s.trio.journal.now(), text, s.trio.journal.of(target{stuck.Project, stuck.Ref}))
			}
		}
	}
}

// compacts stores new bases, at times the same project's at several sites at once.
func (x *trio) compacts(ctx context.Context, random *rand.Rand) {
	for pauseFor(ctx, time.Duration(random.Int64N(int64(4*time.Second)))) {
		project := x.projects[random.IntN(len(x.projects))]
		x.commands.RLock()
		var all sync.WaitGroup
		for _, i := range random.Perm(len(x.sites))[:max(1, random.IntN(len(x.sites)+2)-1)] {
			s := x.sites[i]
			if s.isLost() {
				continue
			}
			all.Go(func() {
				_, err := s.run("site", "store", "compact", project)
				x.job("compact", err)
				x.mu.Lock()
				x.bases++
				x.mu.Unlock()
			})
		}
		all.Wait()
		x.commands.RUnlock()
	}
}
