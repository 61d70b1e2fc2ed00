//go:build linux

package sites

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// An operator works at a site, on one repository after the other. Commands of the operator may be killed.
type operator struct {
	*killing
	site    *trioSite
	random  *rand.Rand
	patient bool                     // no command is killed any more
	guarded map[string]func()        // by project: ends the span in which it is not guarded, or gone
	usual   map[string]time.Duration // how long a command takes that is not killed
	removed int
	made    int
}

// act does something with a repository.
func (o *operator) act() {
	project := o.projects[o.random.IntN(len(o.projects))]
	if !o.has(project) {
		o.puts(project)
		return
	}
	switch o.random.IntN(6) {
	case 0:
		o.disables(project)
	case 1:
		o.run("enable", project) // once more: it is guarded meanwhile
	case 2:
		o.moves(project, filepath.Join(o.site.dir, "away.git"))
	case 3:
		o.moves(project, o.site.repo("team/renamed"))
	case 4:
		o.deletes(project)
	case 5:
		o.maintains(project)
	}
	o.pause()
}

func (o *operator) pause() {
	pauseFor(o.Context(), time.Duration(o.random.Int64N(int64(300*time.Millisecond))))
}

func (o *operator) has(project string) bool {
	_, err := os.Lstat(filepath.Join(o.site.repo(project), "HEAD"))
	return err == nil
}

// starts begins a span that ends when the repository is under guard.
func (o *operator) starts(project string, kind spanKind) {
	end, before := o.begin(o.site, project, kind), o.guarded[project]
	o.guarded[project] = func() {
		end()
		if before != nil {
			before()
		}
	}
}

// disables ends the guard of a repository, or is killed while it does.
func (o *operator) disables(project string) {
	o.starts(project, unguarded)
	for range 1 + o.random.IntN(2) {
		o.run("disable", project)
	}
	o.pause()
	o.puts(project)
}

// moves moves a repository to a path, and back. Meanwhile nobody may push to it there.
func (o *operator) moves(project, path string) {
	end := o.begin(o.site, project, moved)
	if err := os.Rename(o.site.repo(project), path); err != nil {
		o.Error(err)
		return
	}
	if o.random.IntN(2) == 0 {
		if p := o.h.push(o, path, "+"+o.h.b+":refs/heads/stray"); p.ok {
			o.Errorf("%s of %s takes a push at %s: %s", project, o.site.name, path, p.said)
		}
	}
	if o.random.IntN(3) == 0 {
		o.run("check", "--repair")
	}
	o.pause()
	eventually(o, "the way back", func() error {
		o.clears(project)
		if o.has(project) {
			// A daemon has cloned it that does not know of the one that was there: the daemon before was killed too soon
			// to record it. Of two copies one goes.
			return os.RemoveAll(path)
		}
		return os.Rename(path, o.site.repo(project))
	})
	end()
}

// clears removes what is at a repository's path while that is away: a git that worked there makes directories again.
func (o *operator) clears(project string) {
	if path := o.site.repo(project); !o.has(project) {
		if left, err := filepath.Glob(path + "/*/*"); err == nil && len(left) > 0 {
			o.Logf("%7.2fs in the way: %v", o.journal.now().Seconds(), left)
		}
		eventually(o, "the end of what is in the way", func() error { return os.RemoveAll(path) })
	}
}

// deletes removes a repository, and makes it anew.
func (o *operator) deletes(project string) {
	o.starts(project, deleted)
	o.removes(project)
	o.pause()
	o.puts(project)
}

func (o *operator) removes(project string) {
	o.removed++
	trash := filepath.Join(o.site.dir, fmt.Sprint("removed-", o.removed))
	if err := os.Rename(o.site.repo(project), trash); err != nil {
		o.Error(err)
		return
	}
	eventually(o, "the end of the repository", func() error { return os.RemoveAll(trash) }) // a git that runs there may make a file again
}

func (o *operator) maintains(project string) {
	switch o.random.IntN(3) {
	case 0:
		o.run("check", "--repair")
	case 1:
		o.run("maintain", project)
	case 2:
		o.run("store", "compact", project)
	}
}

// puts brings a repository to its place, under guard, as the documents say.
func (o *operator) puts(project string) {
	for began := time.Now(); ; {
		done, said := o.tries(project)
		if done {
			if end := o.guarded[project]; end != nil {
				end()
				delete(o.guarded, project)
			}
			return
		}
		if said != "" && time.Since(began) > patience {
			o.Errorf("%s does not come under guard at %s: %s", project, o.site.name, said)
			return
		}
		if said != "" {
			o.run("check", "--repair")
			o.locks.forget()
		}
	}
}

// tries tries to do so. What it says is empty if that was killed.
func (o *operator) tries(project string) (done bool, said string) {
	_, known, err := o.db.Projects().Get(o.Context(), project)
	switch {
	case err != nil:
		return false, err.Error()
	case !o.has(project) && known:
		done, said = o.run("clone", project)
		switch {
		case strings.Contains(said, config.ErrExists.Error()): // the daemon was faster
			done = true
		case strings.Contains(said, "is there already: remove it"):
			o.clears(project)
		}
		return done, said
	case !o.has(project):
		o.starts(project, unguarded)
		if err := os.MkdirAll(filepath.Dir(o.site.repo(project)), 0o755); err != nil {
			return false, err.Error()
		}
		// It is made outside of the root, where kills don't look for gits, and appears at once.
		o.made++
		made := filepath.Join(o.site.dir, fmt.Sprint("made-", o.made))
		o.g.initBare(o, made, files)
		o.clears(project)
		if err := os.Rename(made, o.site.repo(project)); err != nil {
			return false, err.Error()
		}
		fallthrough
	case !known:
		return o.run("enable", "--new", project)
	}
	done, said = o.run("enable", project)
	switch {
	case strings.Contains(said, " is guarded; "): // with refs that were pushed without a guard
		return true, ""
	case strings.Contains(said, "is empty"):
		o.removes(project)
	}
	return done, said
}

// run runs a command that may be killed. What it says is empty if it was.
func (o *operator) run(args ...string) (done bool, said string) {
	name := args[0]
	cmd := o.site.command(append([]string{"site"}, args...)...)
	out := newOutput(o.TB)
	defer out.file.Close()
	cmd.Stdout, cmd.Stderr = out.file, out.file
	usual := o.usual[name]
	if usual == 0 {
		usual = 200 * time.Millisecond
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		o.Error(err)
		return false, err.Error()
	}
	if !o.patient && o.random.IntN(3) > 0 {
		timer := time.AfterFunc(time.Duration(o.random.Int64N(int64(usual))), func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		o.count("refdbctl site " + name)
		return false, ""
	}
	o.usual[name] = time.Since(began)
	if err != nil {
		err = fmt.Errorf("refdbctl site %s at %s: %w: %s", strings.Join(args, " "), o.site.name, err, out)
		said = err.Error()
	}
	o.job(name, err)
	if err != nil {
		o.Logf("%7.2fs %s", o.journal.now().Seconds(), strings.Join(strings.Fields(said), " "))
	}
	o.mu.Lock()
	o.bases++
	o.mu.Unlock()
	return err == nil, said
}
