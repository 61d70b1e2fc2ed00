package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

func (a *App) storeCommand() *cobra.Command {
	return cli.Group("store", "Keep the objects of projects in the database", a.storeStartCommand(), a.storeCompactCommand(), a.storeListCommand(), a.storeVerifyCommand(), a.storePruneCommand())
}

// storeSettled is the time after a project's change from which on all sites store the objects of
// the pushes that they accept.
const storeSettled = projects.RulesSettle + projects.RefreshEvery + 3*time.Second

var baseColumns = []output.Column[storedBase]{
	{Name: "project", Value: func(b storedBase) any { return b.project }},
	{Name: "pack", Value: func(b storedBase) any { return b.Pack.ID }},
	{Name: "position", Value: func(b storedBase) any { return int64(b.Pack.Position) }},
	{Name: "bytes", Value: func(b storedBase) any { return b.Pack.Size }},
	{Name: "dropped", Value: func(b storedBase) any { return b.Dropped }},
}

type storedBase struct {
	project string
	packs.Base
}

func (a *App) storeStartCommand() *cobra.Command {
	var f Flags
	var why cli.Reason
	var transit bool
	cmd := &cobra.Command{
		Use:   "start REPO",
		Short: "Keep the objects of a project in the database from now on",
		Long: `Keep all objects of REPO in the database from now on. REPO is a project in this site's configuration, or the path of
its repository. The objects of each push are then in the database before the push is acknowledged, the sites that have
the repository follow by themselves, and refdbctl site clone makes further copies.

All sites must run this version. Each site refuses pushes to the project for ` + projects.RulesSettle.String() + ` after it has read the change. The
command waits ` + storeSettled.String() + `, until all sites know of the change, and then stores a base pack: everything that the project has
now. This site must have every ref that the database has, with its objects. Run the command again if it was
interrupted.

With --transit the database keeps objects for a week only, for the sites to unpack: refdbctl site maintain drops older
objects once another site has them. A site that is new, or was away for longer, then needs a new base: refdbctl site
store compact. To switch, run the command again with or without --transit.

Fields: ` + output.Names(baseColumns) + `
(dropped: number of packs that the base replaced)`,
		Example: `  refdbctl site store start team/app --reason "the second site follows"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			_, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error {
				store := config.StoreAll
				if transit {
					store = config.StoreTransit
				}
				return a.storeStart(ctx, db, r, store, why)
			})
		}),
	}
	f.Add(cmd)
	why.AddFlag(cmd)
	cmd.Flags().BoolVar(&transit, "transit", false, "keep objects for a week only")
	return cmd
}

func (a *App) storeStart(ctx context.Context, db *refdb.DB, r config.Repository, store string, why cli.Reason) error {
	row, ok, err := db.Projects().Get(ctx, r.Project)
	switch {
	case err != nil:
		return err
	case !ok:
		return exit.With(exit.Failed, "the database has no project "+r.Project+": run refdbctl site enable first")
	case row.Mode != config.Enforce:
		return exit.With(exit.Failed, fmt.Sprintf("project %s is in mode %s, in which refs move although the database does not have their objects: run refdbctl project set %s --mode %s first",
			r.Project, row.Mode, r.Project, config.Enforce))
	}
	if err := packs.CheckSource(ctx, r.Path); err != nil {
		return err
	}
	stored := packs.Stored(row)
	if err := a.RequireRights(ctx, db, "site store"); err != nil {
		return err
	}
	if row.Store != store {
		next := row
		next.Store = store
		what := cli.Act{Action: "site store start", Project: r.Project, Reason: why, Detail: "store " + store}
		err := a.Audited(ctx, db, what, func() (_ string, err error) {
			row, err = db.Projects().Put(ctx, next)
			return fmt.Sprintf("revision %d", row.Revision), err
		})
		if err != nil {
			return err
		}
	}
	if left := storeSettled - row.Age; left > 0 {
		a.Note("waiting for %s, until all sites store the objects of the pushes that they accept; until then they refuse pushes to %s", left.Round(time.Second), r.Project)
		if err := cli.Sleep(ctx, left); err != nil {
			return err
		}
	}
	if err := a.recordHead(ctx, db, r); err != nil {
		return err
	}
	usage, err := db.Packs().Usage(ctx, r.Project)
	if err != nil {
		return err
	}
	if stored && store == config.StoreTransit && usage.FullPacks > 0 {
		a.Note("%s has a base", r.Project)
		return nil
	}
	base, err := a.storeBaseOf(ctx, db, r)
	if err != nil {
		return err
	}
	return a.printBase(r, base)
}

// storeFirst stores the objects that the database lacks of a project that was put under guard, and
// returns a description of what it did: "" if the database keeps no objects of new projects.
func (a *App) storeFirst(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository) (did string, err error) {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return "", err
	}
	row, ok, err := db.Projects().Get(ctx, r.Project)
	if err != nil {
		return "", err
	}
	if !ok || !packs.Stored(row) {
		if ok && c.NewProjectStore != "" {
			did = "the database keeps no objects of it: refdbctl site store start changes that"
		}
		return did, packs.EndImport(repo.Dir())
	}
	if err := a.recordHead(ctx, db, r); err != nil {
		return "", err
	}
	usage, err := db.Packs().Usage(ctx, r.Project)
	if err != nil || usage.FullPacks > 0 && !packs.ImportIsPending(repo.Dir()) {
		return "has a base", err
	}
	base, err := a.storeBase(ctx, db, r, packs.Limits{})
	switch {
	case errors.Is(err, packs.ErrIncomplete):
		// Another site has the missing objects, and stores the base.
		return "no base yet: " + err.Error(), nil
	case err != nil:
		return "", err
	}
	if err := packs.EndImport(repo.Dir()); err != nil {
		return "", err
	}
	if base.Pack.ID == "" {
		return "from the first push on", nil
	}
	return fmt.Sprintf("a base of %d bytes", base.Pack.Size), nil
}

// recordHead records the target of HEAD in the database, for clones, unless it is recorded already. It
// says so if the project is frozen: no later change of HEAD may come to record it.
func (a *App) recordHead(ctx context.Context, db *refdb.DB, r config.Repository) error {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return err
	}
	here, err := repo.Head(ctx)
	if err != nil {
		return err
	}
	if _, symbolic := refdb.Value(here.Value).Target(); !symbolic {
		return nil
	}
	err = db.Update(ctx, r.Project, []refdb.Update{{Ref: head.Ref, New: refdb.Value(here.Value)}})
	if errors.Is(err, refdb.ErrFrozen) {
		known, reading := db.Get(ctx, r.Project, head.Ref)
		if err = reading; err == nil && known == refdb.Unknown {
			a.Note("the default branch of %s is not recorded in the database while the project is frozen: run the command again after refdbctl project unfreeze", r.Project)
		}
	}
	if err != nil && !errors.Is(err, refdb.ErrMismatch) {
		return err
	}
	agreed, err := head.ReadAgreed(repo.Dir())
	if err == nil && agreed == refdb.Unknown {
		err = head.NoteAgreed(repo.Dir(), refdb.Value(here.Value)) // a copy that joins follows the database
	}
	return err
}

// storeBaseOf stores a base of one repository, and shows its progress.
func (a *App) storeBaseOf(ctx context.Context, db *refdb.DB, r config.Repository) (packs.Base, error) {
	var bar cli.Progress
	defer bar.Stop()
	limits := packs.Limits{}
	if cli.IsTerminal(a.Err) {
		limits.Stored = func(bytes int64) error { bar.Set(a.Err, int(bytes>>20), -1); return nil }
	}
	return a.storeBase(ctx, db, r, limits)
}

func (a *App) storeBase(ctx context.Context, db *refdb.DB, r config.Repository, limits packs.Limits) (packs.Base, error) {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return packs.Base{}, err
	}
	if err := a.awaitComplete(ctx, db, r.Project); err != nil {
		return packs.Base{}, err
	}
	release, err := maintenance.Share(ctx, repo.Dir())
	if err != nil {
		return packs.Base{}, err
	}
	defer release()
	receive := func(ctx context.Context) (*packs.Mark, error) {
		mark, err := packs.ReadMark(repo.Dir())
		if err != nil {
			return nil, err
		}
		state, err := db.HistoryState(ctx)
		if err != nil {
			return nil, err
		}
		mark.Enter(state.Epochs)
		return mark, packs.Receiver{DB: db, Repo: repo, Project: r.Project, Mark: mark}.Receive(ctx)
	}
	return packs.Source{DB: db, Repo: repo, Project: r.Project}.StoreBase(ctx, receive, limits)
}

// awaitComplete waits until the history is complete up to the project's newest change: a base
// contains only complete changes.
func (a *App) awaitComplete(ctx context.Context, db *refdb.DB, project string) error {
	var newest refdb.Position
	for c, err := range a.History(ctx, db, project, "") {
		if err != nil {
			return err
		}
		newest = c.Position
		break
	}
	patience, cancel := a.Limited(ctx)
	defer cancel()
	for {
		s, err := db.HistoryState(patience)
		if err != nil || s.Ended >= newest {
			return err
		}
		if err := cli.Sleep(patience, 50*time.Millisecond); err != nil {
			return exit.With(exit.Failed, fmt.Sprintf("%s: a transaction that began before its latest change has not ended: run refdbctl doctor, then this command again", project))
		}
	}
}

func (a *App) printBase(r config.Repository, base packs.Base) error {
	if base.Pack.ID == "" {
		a.Note("%s has no objects: there is nothing to store", r.Project)
		return nil
	}
	return output.One(a.Out, a.Format, a.Palette(a.Out), baseColumns, storedBase{r.Project, base})
}

func (a *App) storeCompactCommand() *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:   "compact REPO",
		Short: "Store a new base of a project, which replaces its packs",
		Long: `Store a base of REPO, a project in this site's configuration or the path of its repository. A base is a pack of
everything that the project's refs reach, and reached in the last ` + fmt.Sprint(int(packs.KeptFor/(24*time.Hour))) + ` days. It replaces all packs that were stored
before. Pushes continue meanwhile. Run the command when refdbctl site store list shows many packs, or many more bytes
than the repository has, and after refs were written without a push, as by refdbctl refs put.

Fields: ` + output.Names(baseColumns),
		Example: `  refdbctl site store compact team/app`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			_, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error {
				row, ok, err := db.Projects().Get(ctx, r.Project)
				if err == nil && (!ok || !packs.Stored(row)) {
					err = fmt.Errorf("%s: %w: run refdbctl site store start", r.Project, clone.ErrNotStored)
				}
				if err != nil {
					return err
				}
				base, err := a.storeBaseOf(ctx, db, r)
				if err != nil {
					return err
				}
				return a.printBase(r, base)
			})
		}),
	}
	f.Add(cmd)
	return cmd
}

var packColumns = []output.Column[driver.Pack]{
	{Name: "pack", Value: func(p driver.Pack) any { return p.ID }},
	{Name: "base", Value: func(p driver.Pack) any { return p.Full }},
	{Name: "position", Value: func(p driver.Pack) any { return int64(p.Position) }},
	{Name: "bytes", Value: func(p driver.Pack) any { return p.Size }},
	{Name: "age", Value: func(p driver.Pack) any { return p.Age.Seconds() }, Text: func(p driver.Pack) string { return p.Age.Round(time.Second).String() }},
	{Name: "owner", Value: func(p driver.Pack) any { return p.Owner }},
}

func (a *App) storeListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list PROJECT",
		Short: "List a project's packs in the database",
		Long: `List a project's packs in the database, in the order in which they were used.

Fields: ` + output.Names(packColumns) + `
(base: whether the pack stands for all earlier ones; age: seconds since it was stored; owner: the process that stored
it)`,
		Example: `  refdbctl site store list team/app`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				return cli.PrintRows(a.Run, packColumns, packs.List(ctx, db, args[0]))
			})
		}),
	}
}

func (a *App) storeVerifyCommand() *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:   "verify PROJECT",
		Short: "Prove that the database has all objects of a project's refs",
		Long: `Read all packs of a project from the database, compare their checksums, and make a repository of them in a temporary
directory (TMPDIR). That repository must have all objects of all refs. It takes as much space as the project's
repository, and is removed at the end.

Fields: ` + output.Names(verifiedColumns),
		Example: `  refdbctl site store verify team/app`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) (err error) {
			c, err := a.Load(ctx, f)
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "refdb-verify-*")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			return a.WithSiteDB(ctx, func(db *refdb.DB) error {
				rep, err := clone.Clone(ctx, c, db, clone.Options{Project: args[0], Path: filepath.Join(dir, "repository.git")})
				if err != nil {
					return err
				}
				return output.One(a.Out, a.Format, a.Palette(a.Out), verifiedColumns, cloned{args[0], rep})
			})
		}),
	}
	f.Add(cmd)
	return cmd
}
