package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A hooks is the kind of hooks that a repository has.
type hooks string

const (
	noHook    hooks = "no hook"
	noOpHook  hooks = "no-op hook"
	refdbHook hooks = "refdb"
)

var allHooks = []hooks{noHook, noOpHook, refdbHook}

// pushTimes returns how many pushes a measurement counts, by their number of refs,
// and how many it does before: a daemon that has just started prepares its statements.
func pushTimes(refs int) (counted, before int) {
	if refs == 1 {
		return 100, 10
	}
	return 3, 1
}

// pushWorkload is W7: what the guard costs a push.
func pushWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	programs, err := buildPrograms(ctx, s.dir)
	if err != nil {
		return workload{}, err
	}
	gitVersion, err := git(ctx, "version")
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W7",
		title: "git push into a guarded repository",
		setting: fmt.Sprintf("%s, files backend, over file. PostgreSQL %s: %sall repositories have the settings of `refdbctl site enable`, core.fsync=all among them.",
			gitVersion, s.postgres.version, postgresSetting),
		less:    true,
		metrics: []metric{{p50, "p50 ms", 1}, {slowest, "slowest ms", 1}},
	}
	for _, refs := range []int{1, 1000} {
		c := benchCase{name: "1 ref", baseline: string(noHook)}
		if refs > 1 {
			c.name = number(float64(refs), 0) + " refs, atomic"
		}
		t := &interleavedPushes{s: s, programs: programs, refs: refs}
		for _, h := range allHooks {
			c.contestants = append(c.contestants, contestant{string(h), func(ctx context.Context) (sample, error) {
				return t.next(ctx, h)
			}})
		}
		w.cases = append(w.cases, c)
	}
	return w, nil
}

// buildPrograms builds refdbctl and the hook, as they are released, and
// returns their directory.
func buildPrograms(ctx context.Context, dir string) (string, error) {
	module, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/globalrefdb/globalrefdb")
	if err != nil {
		return "", fmt.Errorf("find the product's module: %w: run this in the bench directory", err)
	}
	bin := filepath.Join(dir, "bin")
	_, err = output(ctx, filepath.Join(module, "scripts/build.sh"), bin)
	return bin, err
}

// interleavedPushes measures all kinds of hooks at once, push by push in turn:
// within seconds a machine becomes faster or slower by more than the difference
// between them.
type interleavedPushes struct {
	s        *servers
	programs string
	refs     int
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
		repos := map[hooks]string{}
		for _, h := range allHooks {
			repos[h] = filepath.Join(dir, "root", strings.ReplaceAll(string(h), " ", "-")+".git")
			if _, err := git(ctx, "init", "--quiet", "--bare", repos[h]); err != nil {
				return nil, err
			}
		}
		// All are enabled, so that all have the same settings.
		stop, err := serveSite(ctx, dir, t.programs, url, slices.Collect(maps.Values(repos)))
		if err != nil {
			return nil, err
		}
		defer stop()
		for _, name := range []string{"pre-receive", "update", "reference-transaction"} {
			err := errors.Join(
				os.Remove(filepath.Join(repos[noHook], "hooks", name)),
				replaceBy(filepath.Join(repos[noOpHook], "hooks", name), "/bin/true"))
			if err != nil {
				return nil, err
			}
		}
		measured, err = timePushes(ctx, filepath.Join(dir, "client"), repos, t.refs)
		return nil, err
	})
	return measured, err
}

// replaceBy replaces a hook by a copy of a program.
func replaceBy(hook, program string) error {
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.Remove(hook)
	}
	if err == nil {
		err = os.WriteFile(hook, data, 0o755)
	}
	return err
}

// serveSite starts a site's daemon and enables the repositories.
func serveSite(ctx context.Context, dir, programs, url string, repos []string) (stop func(), err error) {
	config := filepath.Join(dir, "site.config")
	text := fmt.Sprintf("[site]\n\tname = bench\n\troot = %s\n\tsocket = %s\n\tstate = %s\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "site.sock"), dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	site := func(command string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "refdbctl"), append([]string{"site", command, "--config", config}, args...)...)
		cmd.Env = append(os.Environ(), "REFDB_URL="+url)
		return cmd
	}
	log, err := os.Create(filepath.Join(dir, "site.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	daemon := site("serve")
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
	}
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; i < len(repos); {
		said, err := site("enable", "--new", repos[i]).CombinedOutput()
		if err == nil {
			i++
			continue
		}
		if time.Now().After(deadline) {
			stop()
			daemonSaid, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("refdbctl site enable: %w: %s; the daemon said: %s", err, said, daemonSaid)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return stop, nil
}

// timePushes makes a client's repository and pushes from it.
func timePushes(ctx context.Context, client string, repos map[hooks]string, refs int) (map[hooks]sample, error) {
	counted, before := pushTimes(refs)
	commits, err := makeHistory(ctx, client, before+counted)
	if err != nil {
		return nil, err
	}
	args := []string{"-C", client, "push", "--quiet", "--atomic"}
	took := map[hooks][]time.Duration{}
	for i, commit := range commits {
		specs := make([]string, refs)
		for n := range specs {
			specs[n] = commit + ":" + branch(n)
		}
		for _, h := range rotated(allHooks, i) {
			start := time.Now()
			if _, err := git(ctx, slices.Concat(args, []string{repos[h]}, specs)...); err != nil {
				return nil, err
			}
			if i >= before {
				took[h] = append(took[h], time.Since(start))
			}
		}
	}
	measured := map[hooks]sample{}
	for h, t := range took {
		measured[h] = sample{p50: milliseconds(percentile(t, 0.5)), slowest: milliseconds(slices.Max(t))}
	}
	return measured, nil
}

// makeHistory makes a repository with n commits, each the parent of the next, and returns them.
func makeHistory(ctx context.Context, dir string, n int) ([]string, error) {
	if _, err := git(ctx, "init", "--quiet", dir); err != nil {
		return nil, err
	}
	tree, err := git(ctx, "-C", dir, "hash-object", "-w", "-t", "tree", os.DevNull)
	if err != nil {
		return nil, err
	}
	var commits []string
	for i := range n {
		args := []string{"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit-tree", "-m", fmt.Sprint(i), tree}
		if i > 0 {
			args = append(args, "-p", commits[i-1])
		}
		commit, err := git(ctx, args...)
		if err != nil {
			return nil, err
		}
		commits = append(commits, commit)
	}
	return commits, nil
}
