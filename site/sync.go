package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// syncChunk is how many refs are compared with one query and moved in one
// transaction of git's.
const syncChunk = 1000

// SyncOptions say how a repository catches up.
type SyncOptions struct {
	From   string // the URL or path of a peer's copy of the repository
	Peer   string // the peer's name, one component of a ref; "" makes it of From
	DryRun bool   // fetch, and only say what would be done

	// FetchProgress, unless nil, gets git's own progress of the fetch.
	FetchProgress io.Writer
	// Progress, unless nil, is called with how many of the refs that differ
	// have been dealt with.
	Progress func(done, total int)
	// Each, unless nil, is called for every ref that differed.
	Each func(Synced)
}

// A Synced is a ref that differed from the database, and what became of it.
type Synced struct {
	Ref           string
	Result        SyncResult
	Local, Global refdb.Value // as they were found
	Detail        string
}

// A SyncResult says what a sync did with a ref.
type SyncResult string

const (
	SyncCreated SyncResult = "created"
	SyncUpdated SyncResult = "updated"
	SyncDeleted SyncResult = "deleted"
	SyncLocked  SyncResult = "locked"  // a push is under way: it brings the ref here, or the next sync does
	SyncMoved   SyncResult = "moved"   // moved by others meanwhile
	SyncMissing SyncResult = "missing" // its objects are not here, and the peer does not have them yet
	SyncFailed  SyncResult = "failed"  // git, or the hook, refused
)

// A SyncReport counts what a sync found.
type SyncReport struct {
	Peer    string
	Equal   int // they needed nothing
	Unknown int // here, and not in the database: never touched
	Results map[SyncResult]int
	// Unreachable is why the peer could not be fetched from. It was not needed: the
	// objects of all refs that differed were here.
	Unreachable error
}

// Sync makes the repository's guarded refs what the database says, deletes
// included, after fetching the objects from a peer. It never writes to the
// database. A ref with a fresh lock is skipped, and so is one whose objects are not to
// be had. Every ref is moved from the very value that was compared, which was read
// before the database was asked: a push that is under way at the same time is
// never undone. So it is safe at any time, and twice at once. After an error
// some refs have been moved; running it again does the rest. A peer that can't be
// reached is an error only if something is missing here.
func Sync(ctx context.Context, c *Config, db *refdb.DB, r Repository, o SyncOptions) (SyncReport, error) {
	from, err := newSource(o.From, o.Peer)
	if err != nil {
		return SyncReport{}, err
	}
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return SyncReport{}, err
	}
	s := newSyncer(c, db, repo, r.Project, &from, o)
	s.report.Peer = from.name
	err = s.run(ctx)
	return s.report, err
}

// syncer makes one repository catch up.
type syncer struct {
	*Config
	SyncOptions
	db      *refdb.DB
	repo    *gitrepo.Repo
	project string
	peer    *source // nil for what is here already
	report  SyncReport

	done, total int
	failures    int // in a row
}

func newSyncer(c *Config, db *refdb.DB, repo *gitrepo.Repo, project string, from *source, o SyncOptions) *syncer {
	return &syncer{Config: c, SyncOptions: o, db: db, repo: repo, project: project, peer: from,
		report: SyncReport{Results: map[SyncResult]int{}}}
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
	if err := s.ready(ctx, len(deletes)+len(others)); err != nil {
		return err
	}
	// A push that came between the fetch and the comparison is not here yet:
	// what is missing gets another chance.
	var missing []Synced
	s.total = len(deletes) + len(others)
	// What makes room comes first: git can't hold refs/heads/a and refs/heads/a/b.
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

// ready fails if the hooks would refuse n moves one by one, each after a while.
func (s *syncer) ready(ctx context.Context, n int) error {
	if _, err := os.Lstat(socketLink(s.repo)); err != nil || n == 0 || s.DryRun {
		return nil // not guarded yet, or nothing to ask for
	}
	refusal, err := refusalOf(ctx, s.Socket, s.repo.Dir())
	if err == nil && refusal != "" {
		err = errors.New(refusal)
	}
	if err != nil {
		return fmt.Errorf("the site daemon at %s would not let the refs move: %w", s.Socket, err)
	}
	return nil
}

// candidates are the refs that differ: those to delete, and the others.
func (s *syncer) candidates(ctx context.Context) (deletes, others []string, err error) {
	for p, err := range pairs(ctx, s.Config, s.db, s.repo, s.project, func(string) {}) {
		switch {
		case err != nil:
			return nil, nil, err
		case p.global == refdb.Unknown:
			s.report.Unknown++
		case p.same():
			s.report.Equal++
		case p.global.IsDeleted():
			deletes = append(deletes, p.ref)
		default:
			others = append(others, p.ref)
		}
	}
	return deletes, others, nil
}

// catchUp deals with refs, and returns those whose objects are missing.
func (s *syncer) catchUp(ctx context.Context, refs []string) (missing []Synced, err error) {
	for chunk := range slices.Chunk(refs, syncChunk) {
		if ctx.Err() != nil {
			return missing, context.Cause(ctx)
		}
		moves, err := s.compare(ctx, chunk)
		if err != nil {
			return missing, err
		}
		moves, lacking, err := s.complete(ctx, moves)
		if err != nil {
			return missing, err
		}
		missing = append(missing, lacking...)
		if err := s.apply(ctx, moves); err != nil {
			return missing, err
		}
	}
	return missing, nil
}

// compare returns those refs that are to be moved, and tells of the others.
func (s *syncer) compare(ctx context.Context, refs []string) (moves []pair, err error) {
	now, err := lookAgain(ctx, s.db, s.repo, s.project, refs)
	if err != nil {
		return nil, err
	}
	for _, l := range now {
		if result, detail := obstacle(l); result != "" {
			s.tell(Synced{l.ref, result, l.local, l.global, detail})
			continue
		}
		moves = append(moves, l.pair)
	}
	return moves, nil
}

// obstacle says why a ref is not to be moved, if it isn't.
func obstacle(l look) (result SyncResult, detail string) {
	_, symbolic := l.local.Target()
	switch {
	case l.broken != "":
		return SyncFailed, l.broken
	case l.same() || l.global == refdb.Unknown:
		return SyncMoved, "it needs nothing by now"
	case l.lock != nil && l.lock.Intended():
		return SyncLocked, "a push is under way, by " + l.lock.Owner
	case l.lock != nil:
		return SyncLocked, "by " + l.lock.Owner
	case symbolic:
		return SyncFailed, "it is a symbolic ref here: remove it, a guarded ref can't be one"
	case !l.global.IsObjectID():
		return SyncFailed, "the database holds something else than an object ID"
	}
	return "", ""
}

// complete parts the moves whose objects are here from those that lack some.
func (s *syncer) complete(ctx context.Context, moves []pair) (ready []pair, missing []Synced, err error) {
	came, err := s.fetched(ctx, moves)
	if err != nil {
		return nil, nil, err
	}
	var doubtful []string
	for _, m := range moves {
		if !m.global.IsDeleted() && !came[m.ref] {
			doubtful = append(doubtful, string(m.global))
		}
	}
	here, err := connected(ctx, s.repo, doubtful)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range moves {
		if m.global.IsDeleted() || came[m.ref] || here[string(m.global)] {
			ready = append(ready, m)
			continue
		}
		missing = append(missing, Synced{m.ref, SyncMissing, m.local, m.global,
			"its objects are not here, and peer " + s.report.Peer + " does not have them yet"})
	}
	return ready, missing, nil
}

// fetched are the refs whose global values are what the peer's own hold here: those came
// with a fetch, whole.
func (s *syncer) fetched(ctx context.Context, moves []pair) (map[string]bool, error) {
	if s.peer == nil {
		return nil, nil
	}
	names := make([]string, len(moves))
	for i, m := range moves {
		names[i] = s.peer.ref(m.ref)
	}
	values, err := s.repo.Values(ctx, names)
	came := make(map[string]bool, len(moves))
	for i, m := range moves {
		came[m.ref] = values[names[i]] == string(m.global)
	}
	return came, err
}

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
