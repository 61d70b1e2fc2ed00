package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// A hooks is how a repository's pushes are looked at.
type hooks string

const (
	noHook    hooks = "no hook"
	noOpHook  hooks = "no-op hook"
	refdbHook hooks = "refdb"
)

// pushTimes is how often a measurement pushes, by the number of refs, and how often
// before that, uncounted: a daemon that has just started has its statements to prepare.
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
		for _, h := range []hooks{noHook, noOpHook, refdbHook} {
			c.contestants = append(c.contestants, contestant{string(h), func(ctx context.Context) (sample, error) {
				return s.pushes(ctx, programs, h, refs)
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

func (s *servers) pushes(ctx context.Context, programs string, h hooks, refs int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
		dir, err := os.MkdirTemp(s.dir, "push-")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		repo := filepath.Join(dir, "root", project+".git")
		if _, err := git(ctx, "init", "--quiet", "--bare", repo); err != nil {
			return nil, err
		}
		// All are enabled, for the settings.
		stop, err := serveSite(ctx, dir, programs, url, repo)
		if err != nil {
			return nil, err
		}
		defer stop()
		for _, name := range []string{"update", "reference-transaction"} {
			hook := filepath.Join(repo, "hooks", name)
			switch h {
			case noHook:
				err = os.Remove(hook)
			case noOpHook:
				err = replaceBy(hook, "/bin/true")
			}
			if err != nil {
				return nil, err
			}
		}
		return timePushes(ctx, filepath.Join(dir, "client"), repo, refs)
	})
}

// replaceBy makes hook a copy of a program.
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

// serveSite runs a site's daemon and enables the repository.
func serveSite(ctx context.Context, dir, programs, url, repo string) (stop func(), err error) {
	config := filepath.Join(dir, "site.config")
	text := fmt.Sprintf("[site]\n\tname = bench\n\troot = %s\n\tsocket = %s\n\tstate = %s\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "site.sock"), dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	refdbctl := filepath.Join(programs, "refdbctl")
	log, err := os.Create(filepath.Join(dir, "site.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	daemon := exec.CommandContext(ctx, refdbctl, "site", "serve", "--config", config)
	daemon.Env = append(os.Environ(), "REFDB_URL="+url)
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		cmd := exec.CommandContext(ctx, refdbctl, "site", "enable", "--config", config, repo)
		cmd.Env = append(os.Environ(), "REFDB_URL="+url)
		said, err := cmd.CombinedOutput()
		if err == nil {
			return stop, nil
		}
		if time.Now().After(deadline) {
			stop()
			daemonSaid, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("refdbctl site enable: %w: %s; the daemon said: %s", err, said, daemonSaid)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// timePushes makes a client's repository and pushes from it.
func timePushes(ctx context.Context, client, repo string, refs int) (sample, error) {
	counted, before := pushTimes(refs)
	commits, err := makeHistory(ctx, client, before+counted)
	if err != nil {
		return nil, err
	}
	args := []string{"-C", client, "push", "--quiet", "--atomic", repo}
	var took []time.Duration
	for i, commit := range commits {
		specs := make([]string, refs)
		for n := range specs {
			specs[n] = commit + ":" + branch(n)
		}
		start := time.Now()
		if _, err := git(ctx, slices.Concat(args, specs)...); err != nil {
			return nil, err
		}
		if i >= before {
			took = append(took, time.Since(start))
		}
	}
	return sample{
		p50:     milliseconds(percentile(took, 0.5)),
		slowest: milliseconds(slices.Max(took)),
	}, nil
}

// makeHistory makes a repository with a line of n commits, and returns them.
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
