package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The names of W10's sites, in byte order.
var siteNames = [...]string{"eu", "us"}

// pusherBranch returns the branch of a pusher. The branches of a site's pushers have a folder of their own.
func pusherBranch(site, pusher int) string {
	return fmt.Sprintf("refs/heads/%s/pusher-%02d", siteNames[site], pusher)
}

// places are the repositories of sites, the same at all of them at first.
type places struct {
	sites   int
	repos   int
	pushers int // of each site. Each has a branch in every repository
	others  int // refs of each repository besides

	dir  string
	plan *pushPlan
}

func projectName(n int) string            { return fmt.Sprintf("project-%04d", n) }
func (p *places) siteDir(site int) string { return filepath.Join(p.dir, siteNames[site]) }
func (p *places) repo(site, n int) string {
	return filepath.Join(p.siteDir(site), "root", projectName(n)+".git")
}
func (p *places) file(site, n int, ref string) string { return filepath.Join(p.repo(site, n), ref) }

// with plans pushes and makes repositories for them, in a directory below parent that is removed after do.
func (p places) with(ctx context.Context, parent string, pushes []plannedPush, do func(*places) (sample, error)) (_ sample, err error) {
	if p.dir, err = os.MkdirTemp(parent, "sites-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	if p.plan, err = makePlan(ctx, filepath.Join(p.dir, "client.git"), pushes); err != nil {
		return nil, err
	}
	if err := p.make(ctx); err != nil {
		return nil, err
	}
	return do(&p)
}

// make makes the repositories.
func (p *places) make(ctx context.Context) error {
	template := filepath.Join(p.dir, "template.git")
	if err := makeTemplate(ctx, template, p.plan); err != nil {
		return err
	}
	err := writeRefs(template, p.plan.seed, p.others+p.sites*p.pushers, func(i int) string {
		if i < p.others {
			return branch(i)
		}
		i -= p.others
		return pusherBranch(i/p.pushers, i%p.pushers)
	})
	if err != nil {
		return err
	}
	for site := range p.sites {
		for n := range p.repos {
			if err := os.CopyFS(p.repo(site, n), os.DirFS(template)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeTemplate makes a repository that has the plan's first commit, and no ref. It is as durable as a guarded one, and never collects garbage.
func makeTemplate(ctx context.Context, path string, plan *pushPlan) error {
	const ref = "refs/heads/seed"
	if _, err := git(ctx, "init", "--quiet", "--bare", "--template=", path); err != nil {
		return err
	}
	for _, setting := range [][2]string{{"core.fsync", "all"}, {"core.logAllRefUpdates", "always"}, {"receive.autogc", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"}} {
		if _, err := git(ctx, "--git-dir", path, "config", setting[0], setting[1]); err != nil {
			return err
		}
	}
	if _, err := git(ctx, "--git-dir", plan.client, "push", "--quiet", path, plan.seed+":"+ref); err != nil {
		return err
	}
	_, err := git(ctx, "--git-dir", path, "update-ref", "-d", ref)
	return err
}

// push pushes the n-th planned commit.
func (p *places) push(ctx context.Context, n int) error {
	w := p.plan.pushes[n]
	_, err := git(ctx, "--git-dir", p.plan.client, "push", "--quiet", p.repo(w.site, w.repo), w.commit+":"+w.branch)
	return err
}

// other returns the other site.
func other(site int) int { return 1 - site }

// awaitAtOther waits until the other site's branch has the n-th planned commit, or one that came after it, and returns
// when that was seen. It reads the branch's file every millisecond, and after the first 100 ms in steps of a
// hundredth of the time it has waited, so that many waiters take little of the machine.
func (p *places) awaitAtOther(ctx context.Context, n int) (seen time.Time, err error) {
	began := time.Now()
	for {
		there, err := p.isAtOther(n)
		now := time.Now()
		if there || err != nil {
			return now, err
		}
		select {
		case <-time.After(max(time.Millisecond, now.Sub(began)/100)):
		case <-ctx.Done():
			return now, fmt.Errorf("push %d is not at the other site %s after it was acknowledged: %w", n, now.Sub(began).Round(time.Millisecond), context.Cause(ctx))
		}
	}
}

func (p *places) isAtOther(n int) (bool, error) {
	w := p.plan.pushes[n]
	// A branch that was not moved yet is packed, and has no file.
	text, err := os.ReadFile(p.file(other(w.site), w.repo, w.branch))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	have, ok := p.plan.number[strings.TrimSpace(string(text))]
	return ok && have >= n, nil
}
