// Package catchup brings a repository to what the database holds: it fetches objects from
// another site's copy, and moves refs in git transactions. It never writes to the database.
package catchup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// Options are the options of [Sync].
type Options struct {
	From   string // the URL or path of a peer's copy of the repository
	Peer   string // the peer's name, one component of a ref; "" makes it of From
	DryRun bool   // fetch, let git check the moves, and report what would be done
	// Force takes the database's values also where it seems to have been set back.
	Force bool

	// FetchProgress, unless nil, gets git's own progress of the fetch.
	FetchProgress io.Writer
	// Progress, unless nil, is called with how many of the refs that differ
	// have been dealt with.
	Progress func(done, total int)
	// Each, unless nil, is called for every ref that differed.
	Each func(Synced)

	// untilHeld is a test's patience with another process that has git's lock file. Default: lockPatience.
	untilHeld time.Duration
}

// A Synced is a ref that differed from the database, and the result.
type Synced struct {
	Ref           string
	Result        Result
	Local, Global refdb.Value // as they were found
	Detail        string
}

// A Result says what a sync did with a ref.
type Result string

const (
	Created Result = "created"
	Updated Result = "updated"
	Deleted Result = "deleted"
	Locked  Result = "locked"  // a push is under way: it brings the ref here, or the next sync does
	Moved   Result = "moved"   // moved by others meanwhile
	Missing Result = "missing" // its objects are not here, and the peer does not have them yet
	Failed  Result = "failed"  // git refused
	Ahead   Result = "ahead"   // left, for the database has an older value than it had: it seems to have been set back
	Held    Result = "held"    // of a [Copy] that is not patient: another process has git's lock file
)

// A Report counts what a sync found.
type Report struct {
	Peer    string
	Equal   int // they needed nothing
	Unknown int // here, and not in the database: never touched
	Results map[Result]int
	// Unreachable is why the peer could not be fetched from. It was not needed: the
	// objects of all refs that differed were here.
	Unreachable error
}

// Sync fetches objects from a peer, and then gives the repository's guarded refs the values that
// the database has, deletions included. It never writes to the database. It skips refs with a
// fresh lock, refs whose objects are missing, and refs whose row was written before the value that
// is here was settled: such a database was set back, as by a restore from a backup.
//
// Every ref moves from exactly the value that was compared, which was read before the database
// was asked: a push at the same time is never undone. So Sync may run at any time, also twice at
// once. After an error some refs have moved; another run moves the others. A peer that can't be
// reached is an error only if objects are missing here.
func Sync(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, o Options) (Report, error) {
	from, err := newSource(o.From, o.Peer)
	if err != nil {
		return Report{}, err
	}
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return Report{}, err
	}
	if c, err = projects.WithRules(ctx, c, db, r.Project); err != nil {
		return Report{}, err
	}
	// What it finds to be here must stay until refs reach it.
	release, err := maintenance.Share(ctx, repo.Dir())
	if err != nil {
		return Report{}, err
	}
	defer release()
	s := newSyncer(c, db, repo, r.Project, &from, o)
	err = s.run(ctx)
	return s.report, err
}

// SyncRefs is [Sync] for some refs, without a fetch. C has the project's rules, and the repository
// must not be pruned meanwhile. Each is called for every ref that differed.
func SyncRefs(ctx context.Context, c *config.Config, db *refdb.DB, repo *gitrepo.Repo, project string, refs []string, each func(Synced)) error {
	return newSyncer(c, db, repo, project, nil, Options{Each: each}).some(ctx, refs)
}

// brokenRefs returns the guarded refs that git can't read.
func (s *syncer) brokenRefs(ctx context.Context) (broken []string, err error) {
	for _, err := range s.repo.Refs(ctx, func(complaint string) {
		if ref, ok := strings.CutPrefix(complaint, "warning: ignoring broken ref "); ok && s.Guards(s.project, ref) {
			broken = append(broken, ref)
		}
	}) {
		if err != nil {
			return nil, err
		}
	}
	return broken, nil
}

// lockPatience is how long a sync retries while another process has git's lock file. Pushes wait as
// long for each other.
const lockPatience = 10 * time.Second

// A syncer syncs one repository.
type syncer struct {
	*config.Config
	Options
	db       *refdb.DB
	repo     *gitrepo.Repo
	project  string
	peer     *source // nil for what is here already
	mover    Mover
	asks     bool                 // has the daemon move refs, if the repository is guarded
	whole    func(id string) bool // nil if nothing is known of the objects here
	patience time.Duration        // with another process that has git's lock file
	report   Report

	done, total int
	failures    int                  // in a row
	leaving     []string             // refs that a dry run has not deleted
	here        map[string]bool      // object IDs; everything that they reach is here
	rows        map[string]refdb.Ref // the database's rows of refs that differ
	held        []Synced             // refs that git could not lock
}

// newSyncer returns a syncer for a process other than the daemon.
func newSyncer(c *config.Config, db *refdb.DB, repo *gitrepo.Repo, project string, from *source, o Options) *syncer {
	s := &syncer{Config: c, Options: o, db: db, repo: repo, project: project, peer: from, asks: true, patience: cmp.Or(o.untilHeld, lockPatience),
		report: Report{Results: map[Result]int{}}, here: map[string]bool{}, rows: map[string]refdb.Ref{}}
	s.mover = &alone{repo: repo, guarded: s.asksDaemon}
	if from != nil {
		s.report.Peer = from.name
	}
	return s
}

// some syncs some refs.
func (s *syncer) some(ctx context.Context, refs []string) error {
	missing, err := s.catchUp(ctx, refs)
	for _, m := range missing {
		s.tell(m)
	}
	return err
}

// asksDaemon reports whether the daemon has to move the refs.
func (s *syncer) asksDaemon() bool { return s.asks && !s.DryRun && s.isGuarded() }

// isGuarded reports whether the daemon guards the repository.
func (s *syncer) isGuarded() bool {
	_, err := os.Lstat(install.SocketLink(s.repo))
	return err == nil
}

func (s *syncer) run(ctx context.Context) error {
	unreachable := s.fetch(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if unreachable != nil {
		s.peer = nil // what came from it before may have been lost since
	}
	deletes, others, err := s.candidates(ctx)
	if err != nil {
		return err
	}
	refusal := s.ready(ctx, len(deletes)+len(others))
	if refusal != nil && !s.DryRun {
		return refusal
	}
	if err := s.catchUpAll(ctx, deletes, others, unreachable); err != nil {
		return err
	}
	return refusal // a dry run has told what would be done else
}

// catchUpAll syncs all refs that differ. Unreachable is why the fetch failed, if it did.
func (s *syncer) catchUpAll(ctx context.Context, deletes, others []string, unreachable error) (err error) {
	// The objects of a push that came after the fetch are not here yet: one more fetch may bring them.
	var missing []Synced
	s.total = len(deletes) + len(others)
	// Deletions come first: git can't hold refs/heads/a and refs/heads/a/b at once.
	for _, refs := range [][]string{deletes, others} {
		more, err := s.catchUp(ctx, refs)
		if err != nil {
			return err
		}
		missing = append(missing, more...)
	}
	if len(missing) == 0 {
		s.report.Unreachable = unreachable
		return nil
	}
	if s.peer == nil {
		for _, m := range missing {
			s.tell(m)
		}
		return unreachable
	}
	if err := s.fetch(ctx); err != nil {
		return err
	}
	again := make([]string, len(missing))
	for i, m := range missing {
		again[i] = m.Ref
	}
	missing, err = s.catchUp(ctx, again)
	for _, m := range missing {
		s.tell(m)
	}
	return err
}

func (s *syncer) fetch(ctx context.Context) error {
	if s.peer == nil {
		return nil
	}
	return s.peer.fetch(ctx, s.repo, s.FetchProgress)
}

// ready returns an error if the daemon would not make the n moves.
func (s *syncer) ready(ctx context.Context, n int) error {
	if n == 0 || !s.asks || !s.isGuarded() {
		return nil
	}
	refusal, err := client.Refusal(ctx, s.Socket, s.repo.Dir())
	if err == nil && refusal != "" {
		err = errors.New(refusal)
	}
	if err != nil {
		return fmt.Errorf("the site daemon at %s would not move the refs: %w", s.Socket, err)
	}
	return nil
}

// candidates returns the refs that differ: those to delete, and the others.
func (s *syncer) candidates(ctx context.Context) (deletes, others []string, err error) {
	for p, err := range compare.Pairs(ctx, s.Config, s.db, s.repo, s.project, func(string) {}) {
		switch {
		case err != nil:
			return nil, nil, err
		case p.Global == refdb.Unknown:
			s.report.Unknown++
		case p.Agree():
			s.report.Equal++
		case p.Global.IsDeleted():
			deletes = append(deletes, p.Ref)
		default:
			others = append(others, p.Ref)
		}
	}
	return deletes, others, nil
}

const aheadDetail = "the database has an older value than when this site got its value: the database seems to have been set back; " +
	`see OPERATIONS.md, "The database went back in time", or --force to take its value`

func (s *syncer) tell(o Synced) {
	s.report.Results[o.Result]++
	if s.Each != nil {
		s.Each(o)
	}
	s.done++
	if s.Progress != nil {
		s.Progress(s.done, s.total)
	}
}
