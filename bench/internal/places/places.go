// Package places makes the repositories of sites, and pushes that are planned beforehand, so that all contestants make
// the same ones.
package places

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
)

// SiteNames are the names of the sites, in byte order.
var SiteNames = [...]string{"eu", "us"}

// PusherBranch returns the branch of a pusher. The branches of a site's pushers have a folder of their own.
func PusherBranch(site, pusher int) string {
	return fmt.Sprintf("refs/heads/%s/pusher-%02d", SiteNames[site], pusher)
}

// Places are the repositories of sites, the same at all of them at first.
type Places struct {
	Sites   int
	Repos   int
	Pushers int // of each site. Each has a branch in every repository
	Others  int // refs of each repository besides

	Dir  string // set by With
	Plan *Plan  // likewise
}

// ProjectName returns the name of the n-th project.
func ProjectName(n int) string { return fmt.Sprintf("project-%04d", n) }

// SiteDir returns the directory of a site.
func (p *Places) SiteDir(site int) string { return filepath.Join(p.Dir, SiteNames[site]) }

// Repo returns the path of a site's copy of the n-th project.
func (p *Places) Repo(site, n int) string {
	return filepath.Join(p.SiteDir(site), "root", ProjectName(n)+".git")
}

func (p *Places) file(site, n int, ref string) string { return filepath.Join(p.Repo(site, n), ref) }

// With plans pushes and makes the repositories of p for them, in a directory below parent that is removed after do.
func With[T any](ctx context.Context, p Places, parent string, pushes []Push, do func(*Places) (T, error)) (result T, err error) {
	if p.Dir, err = os.MkdirTemp(parent, "sites-"); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.Dir)) }()
	if p.Plan, err = makePlan(ctx, filepath.Join(p.Dir, "client.git"), pushes); err != nil {
		return result, err
	}
	if err := p.make(ctx); err != nil {
		return result, err
	}
	return do(&p)
}

// make makes the repositories.
func (p *Places) make(ctx context.Context) error {
	template := filepath.Join(p.Dir, "template.git")
	if err := makeTemplate(ctx, template, p.Plan); err != nil {
		return err
	}
	err := writeRefs(template, p.Plan.seed, p.Others+p.Sites*p.Pushers, func(i int) string {
		if i < p.Others {
			return Branch(i)
		}
		i -= p.Others
		return PusherBranch(i/p.Pushers, i%p.Pushers)
	})
	if err != nil {
		return err
	}
	for site := range p.Sites {
		for n := range p.Repos {
			if err := os.CopyFS(p.Repo(site, n), os.DirFS(template)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeTemplate makes a repository that has the plan's first commit, and no ref. It is as durable as a guarded one, and never collects garbage.
func makeTemplate(ctx context.Context, path string, plan *Plan) error {
	const ref = "refs/heads/seed"
	if _, err := command.Git(ctx, "init", "--quiet", "--bare", "--template=", path); err != nil {
		return err
	}
	for _, setting := range [][2]string{{"core.fsync", "all"}, {"core.logAllRefUpdates", "always"}, {"receive.autogc", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"}} {
		if _, err := command.Git(ctx, "--git-dir", path, "config", setting[0], setting[1]); err != nil {
			return err
		}
	}
	if _, err := command.Git(ctx, "--git-dir", plan.client, "push", "--quiet", path, plan.seed+":"+ref); err != nil {
		return err
	}
	_, err := command.Git(ctx, "--git-dir", path, "update-ref", "-d", ref)
	return err
}

// Push pushes the n-th planned commit.
func (p *Places) Push(ctx context.Context, n int) error {
	w := p.Plan.Pushes[n]
	_, err := command.Git(ctx, "--git-dir", p.Plan.client, "push", "--quiet", p.Repo(w.Site, w.Repo), w.commit+":"+w.Branch)
	return err
}

// Other returns the other site.
func Other(site int) int { return 1 - site }

// AwaitAtOther waits until the other site's branch has the n-th planned commit, or one that came after it, and returns
// when that was seen. It reads the branch's file every millisecond, and after the first 100 ms in steps of a
// hundredth of the time it has waited, so that many waiters take little of the machine.
func (p *Places) AwaitAtOther(ctx context.Context, n int) (seen time.Time, err error) {
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

func (p *Places) isAtOther(n int) (bool, error) {
	w := p.Plan.Pushes[n]
	// A branch that was not moved yet is packed, and has no file.
	text, err := os.ReadFile(p.file(Other(w.Site), w.Repo, w.Branch))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	have, ok := p.Plan.number[strings.TrimSpace(string(text))]
	return ok && have >= n, nil
}

// FetchAll fetches into each repository of a site what the other site's pushers have pushed.
func FetchAll(ctx context.Context, p *Places, to int) error {
	from := Other(to)
	branches := fmt.Sprintf("+refs/heads/%s/*:refs/heads/%[1]s/*", SiteNames[from])
	for n := range p.Repos {
		if _, err := command.Git(ctx, "--git-dir", p.Repo(to, n), "fetch", "--quiet", "file://"+p.Repo(from, n), branches); err != nil {
			return err
		}
	}
	return nil
}
