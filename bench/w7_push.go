package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
	"github.com/globalrefdb/globalrefdb/bench/internal/places"
	"github.com/globalrefdb/globalrefdb/bench/internal/site"
)

// A hooks is the kind of hooks that a repository has.
type hooks string

const (
	noHook      hooks = "no hook"
	noOpHook    hooks = "no-op hook"
	refdbHook   hooks = "refdb"
	storingHook hooks = "refdb, objects too"
)

// A pushCase is one size of a push, and of the repository that it goes to.
type pushCase struct {
	name            string
	refs            int // that a push moves
	others          int // that the repository has besides
	kinds           []hooks
	counted, before int // how many pushes a measurement counts, and does before: a daemon that has just started prepares its statements
}

func pushCases() []pushCase {
	all := []hooks{noHook, noOpHook, refdbHook, storingHook}
	return []pushCase{
		{name: "1 ref", refs: 1, kinds: all, counted: 100, before: 10},
		{name: "1,000 refs, atomic", refs: 1000, kinds: all, counted: 3, before: 1},
		{name: "1 of 100,000 refs", refs: 1, others: 100_000, kinds: []hooks{noHook, refdbHook, storingHook}, counted: 10, before: 2},
	}
}

// pushWorkload is W7: what the guard costs a push.
func pushWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, gitVersion, err := s.needSites(ctx)
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W7",
		title: "git push into a guarded repository",
		setting: fmt.Sprintf("%s, files backend, over file. PostgreSQL %s: %sall repositories have the settings of `refdbctl site enable`, core.fsync=all among them. "+
			"Objects too: the database keeps the project's objects (store = all), and a push is acknowledged once it has them (durability = database).",
			gitVersion, s.postgres.version, postgresSetting),
		less:    true,
		metrics: []metric{{p50, "p50 ms", 1}, {slowest, "slowest ms", 1}},
	}
	for _, p := range pushCases() {
		c := benchCase{name: p.name, baseline: string(noHook)}
		t := &interleavedPushes{s: s, programs: programs, pushCase: p}
		for _, h := range p.kinds {
			c.contestants = append(c.contestants, contestant{string(h), func(ctx context.Context) (sample, error) {
				return t.next(ctx, h)
			}})
		}
		w.cases = append(w.cases, c)
	}
	return w, nil
}

// interleavedPushes measures all kinds of hooks at once, push by push in turn:
// within seconds a machine becomes faster or slower by more than the difference
// between them.
type interleavedPushes struct {
	pushCase
	s        *servers
	programs string
	measured map[hooks]sample // of this round, and not returned yet
}

// next returns the next round's measurement of h. It is called once per round for each h.
func (t *interleavedPushes) next(ctx context.Context, h hooks) (sample, error) {
	if _, ok := t.measured[h]; !ok {
		var err error
		if t.measured, err = t.measure(ctx); err != nil {
			return nil, err
		}
	}
	defer delete(t.measured, h)
	return t.measured[h], nil
}

func (t *interleavedPushes) measure(ctx context.Context) (measured map[hooks]sample, err error) {
	dir, err := os.MkdirTemp(t.s.dir, "push-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	_, err = t.s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
		s := &site.Site{Name: "bench", Dir: dir, Programs: t.programs, URL: url}
		repos, err := t.guard(ctx, s)
		defer s.Stop()
		if err != nil {
			return nil, err
		}
		if err := runsInstead(ctx, repos[noHook], filepath.Join(dir, "no-hooks"), ""); err != nil {
			return nil, err
		}
		if repo, ok := repos[noOpHook]; ok {
			if err := runsInstead(ctx, repo, filepath.Join(dir, "no-op-hooks"), "/bin/true"); err != nil {
				return nil, err
			}
		}
		measured, err = t.timePushes(ctx, filepath.Join(dir, "client"), repos)
		return nil, s.Explain(err)
	})
	return measured, err
}

// guard starts the site with a repository for each kind of hooks. All are enabled, so that all have the same settings.
func (t *interleavedPushes) guard(ctx context.Context, s *site.Site) (map[hooks]string, error) {
	repos := map[hooks]string{}
	for _, h := range t.kinds {
		repos[h] = s.Repo(strings.NewReplacer(",", "", " ", "-").Replace(string(h)))
		if err := places.MakeRepository(ctx, repos[h], t.others, func(i int) string { return places.Branch(i + 1) }); err != nil {
			return nil, err
		}
	}
	err := s.Configure(site.StoreNone)
	if err == nil {
		err = s.Start(ctx)
	}
	if err == nil {
		err = s.Ready(ctx)
	}
	for _, h := range t.kinds {
		store := site.StoreNone
		if h == storingHook {
			store = site.StoreAll
		}
		if err == nil {
			err = s.Configure(store)
		}
		if err == nil {
			err = s.Enable(ctx, repos[h])
		}
	}
	return repos, err
}

// runsInstead lets git run copies of a program as the hooks of a guarded repository, none if program is "". They are made in dir.
func runsInstead(ctx context.Context, repo, dir, program string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if program != "" {
		data, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		for _, name := range []string{"pre-receive", "update", "reference-transaction"} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
				return err
			}
		}
	}
	// Of several values git takes the last one, and the site's own is that of a file that is included.
	file := dir + ".config"
	if _, err := command.Git(ctx, "config", "--file", file, "core.hooksPath", dir); err != nil {
		return err
	}
	_, err := command.Git(ctx, "--git-dir="+repo, "config", "--add", "include.path", file)
	return err
}

// timePushes makes a client's repository and pushes from it.
func (t *interleavedPushes) timePushes(ctx context.Context, client string, repos map[hooks]string) (map[hooks]sample, error) {
	commits, err := makeHistory(ctx, client, t.before+t.counted)
	if err != nil {
		return nil, err
	}
	args := []string{"-C", client, "push", "--quiet", "--atomic"}
	took := map[hooks][]time.Duration{}
	for i, commit := range commits {
		specs := make([]string, t.refs)
		for n := range specs {
			specs[n] = commit + ":" + places.Branch(n)
		}
		for _, h := range rotated(t.kinds, i) {
			start := time.Now()
			if _, err := command.Git(ctx, slices.Concat(args, []string{repos[h]}, specs)...); err != nil {
				return nil, err
			}
			if i >= t.before {
				took[h] = append(took[h], time.Since(start))
			}
		}
	}
	measured := map[hooks]sample{}
	for h, d := range took {
		measured[h] = sample{p50: milliseconds(percentile(d, 0.5)), slowest: milliseconds(slices.Max(d))}
	}
	return measured, nil
}

// makeHistory makes a repository with n commits, each the parent of the next, and returns them.
func makeHistory(ctx context.Context, dir string, n int) ([]string, error) {
	if _, err := command.Git(ctx, "init", "--quiet", dir); err != nil {
		return nil, err
	}
	tree, err := command.Git(ctx, "-C", dir, "hash-object", "-w", "-t", "tree", os.DevNull)
	if err != nil {
		return nil, err
	}
	var commits []string
	for i := range n {
		args := []string{"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit-tree", "-m", fmt.Sprint(i), tree}
		if i > 0 {
			args = append(args, "-p", commits[i-1])
		}
		commit, err := command.Git(ctx, args...)
		if err != nil {
			return nil, err
		}
		commits = append(commits, commit)
	}
	return commits, nil
}
