// Package follow keeps the repositories of a site up with the database: it reads which refs change, unpacks the objects
// that other sites have stored, and moves the refs to what the database holds.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

const (
	// saveEvery is how often the place in the changes is recorded.
	saveEvery = 5 * time.Second
	// saveIdle takes the place of saveEvery while nothing changes.
	saveIdle = time.Minute
	// retryFirst and retryLast are the pauses after a repository could not be brought up.
	retryFirst = 50 * time.Millisecond
	retryLast  = 30 * time.Second
	// heldFor is how long another process may have git's lock file of a ref before the ref counts as
	// one that git refuses to move.
	heldFor = 10 * time.Second
	// retryNew is the longest pause once something else has changed, and for a repository that is too
	// busy to be moved in.
	retryNew = time.Second
)

// Options configure a [Follower].
type Options struct {
	State    *serving.State
	Projects *projects.Cache
	Policy   *policy.Policy
	Witness  *witness.Witness
	Pruning  *maintenance.Pruning
	Claims   *claims.Claims
	Mover    *mover.Mover
	Moves    *moves.List
	Marks    *moves.Marks
	Dir      string // the site's directory
	Name     string // under which it is registered as a reader of changes
	Logger   *slog.Logger
	Digest   func(project, ref string) string // what stands for a ref in logs
	// Parallel is how many repositories are brought up at once.
	Parallel int
	// Appeared is called with a repository that is new here, or took the place of another, before
	// the follower knows it.
	Appeared func(r config.Repository)
	// Changed is called when another process has changed refs in the database, and when refs here
	// are no longer claimed for such changes.
	Changed func(project string, refs ...string)
	// Killed is called when a git that moved refs of the repository at path was killed: it may have
	// left lock files.
	Killed func(path string, refs []string)
}

// A Follower brings repositories up. Each is dealt with by itself: one that fails holds up no other.
type Follower struct {
	db    *refdb.DB
	o     Options
	queue *queue

	saving sync.Mutex // held while the state file is written

	mu     sync.Mutex
	marks  map[string]*packs.Mark // of the repositories that were brought up, by project
	known  map[string]string      // the repositories that were compared as a whole, or are to be, by project
	failed map[string]Failure
	heads  map[string]watchedHead // by project
	// malformed are the last objections to objects of projects.
	malformed map[string]Malformed
	unpack    gitrepo.UnpackLimits
	lockWait  time.Duration
	epochs    []driver.Epoch
	cursor    refdb.Cursor
	saved     state         // what the state file has
	loaded    chan struct{} // closed once that was read
	again     chan struct{} // has an item if all repositories are to be compared

	moved, received, bytes, failures, objections atomic.Uint64
}

// A Failure says why a repository is behind.
type Failure struct {
	Project  string
	Reason   string
	Since    time.Time
	Unplaced int    // refs that git refuses to move
	Pack     string // the ID of the pack that can't be unpacked, if that is why
}

// Malformed says what git's fsck objects to in an object of a pack, which was unpacked all the same.
type Malformed struct {
	Project   string
	Pack      driver.Pack
	Objection string
	At        time.Time
}

// malformedFor is how long an objection is shown.
const malformedFor = 24 * time.Hour

// New returns a follower.
func New(db *refdb.DB, o Options) *Follower {
	return &Follower{
		db: db, o: o, queue: newQueue(), marks: map[string]*packs.Mark{}, known: map[string]string{}, failed: map[string]Failure{},
		heads: map[string]watchedHead{}, malformed: map[string]Malformed{}, unpack: gitrepo.DefaultUnpackLimits(), lockWait: lockWait,
		loaded: make(chan struct{}), again: make(chan struct{}, 1),
	}
}

// SetUnpackLimits changes what git may use to unpack a pack. It is called before Run.
func (f *Follower) SetUnpackLimits(l gitrepo.UnpackLimits) { f.unpack = l }

// Run keeps the repositories up until ctx ends. It waits out a database that is down.
func (f *Follower) Run(ctx context.Context) {
	f.load(ctx)
	close(f.loaded)
	var tasks sync.WaitGroup
	defer func() {
		tasks.Wait()
		f.save(context.WithoutCancel(ctx))
	}()
	for range max(1, f.o.Parallel) {
		tasks.Go(func() { f.work(ctx) })
	}
	tasks.Go(func() { f.discover(ctx) })
	tasks.Go(func() { f.watchHeads(ctx) })
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = retryFirst, 5*time.Second
	for {
		began := time.Now()
		err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, refdb.ErrPruned) || errors.Is(err, refdb.ErrRewound) {
			f.startOver(ctx, err)
		}
		f.log(ctx, "changes can't be followed; trying again", err)
		if time.Since(began) > time.Minute {
			retry.Reset()
		}
		pause.For(ctx, retry.NextBackOff())
	}
}

// Look brings refs of a project up soon: they were found to be behind. Without refs it compares all.
func (f *Follower) Look(project string, refs ...string) {
	if len(refs) == 0 {
		f.queue.addAll(project)
		return
	}
	f.queue.add(project, refs...)
}

// Receive unpacks all that the database has of a project's objects and that is not here yet. It moves no ref. What it
// records is on the disk when it returns.
func (f *Follower) Receive(ctx context.Context, project string) error {
	if err := f.queue.Hold(ctx, project); err != nil {
		return err
	}
	defer f.queue.Release(project)
	_, r, err := f.ruled(ctx, project)
	if err != nil {
		return err
	}
	repo, mark, release, err := f.open(ctx, project, r)
	if err != nil {
		return err
	}
	defer release()
	if err := f.receive(ctx, project, repo, mark, nil); err != nil {
		return err
	}
	return mark.Sync(repo.Dir())
}

// Pruned is called after the repository of a project was pruned, while nobody shares it.
func (f *Follower) Pruned(project string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mark := f.marks[project]; mark != nil {
		mark.Pruned()
	}
}

// Made records that packs were made of the repository of a project in dir, and used: it has what is in them.
func (f *Follower) Made(project, dir string, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mark := f.marks[project]; mark != nil && len(ids) > 0 {
		if there, err := packs.ReadMark(dir); err == nil && there.ID == mark.ID {
			mark.Made(ids)
		}
	}
}

// Failures returns why repositories are behind, in the order of their projects.
func (f *Follower) Failures() (all []Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, failure := range f.failed {
		all = append(all, failure)
	}
	slices.SortFunc(all, func(a, b Failure) int { return strings.Compare(a.Project, b.Project) })
	return all
}

// FoundMalformed records that git's fsck objects to an object of a pack that another site stored.
func (f *Follower) FoundMalformed(ctx context.Context, project string, p driver.Pack, objection string) {
	f.objections.Add(1)
	f.o.Logger.WarnContext(ctx, "git objects to the form of an object that another site accepted; it is stored: see `refdbctl site status`", "project", f.o.Digest(project, ""), "pack", p.ID)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.malformed[project] = Malformed{project, p, objection, time.Now()}
}

// Malformed returns the last objection to an object of each project, of the last day, in the order of the projects, and how many there were since the start.
func (f *Follower) Malformed() (all []Malformed, count uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for project, m := range f.malformed {
		if time.Since(m.At) > malformedFor {
			delete(f.malformed, project)
			continue
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Malformed) int { return strings.Compare(a.Project, b.Project) })
	return all, f.objections.Load()
}

// Followed returns how many repositories are kept up.
func (f *Follower) Followed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known)
}

// Stats returns how many refs were moved, and packs unpacked, and how many repositories are being brought up or wait for it.
func (f *Follower) Stats() (moved, received uint64, waiting int) {
	return f.moved.Load(), f.received.Load(), f.queue.Len()
}

// Traffic returns how many bytes of packs were unpacked, and how often a repository could not be brought up.
func (f *Follower) Traffic() (bytes, failures uint64) { return f.bytes.Load(), f.failures.Load() }

// read takes what changes, until there is an error.
func (f *Follower) read(ctx context.Context) error {
	f.mu.Lock()
	cursor := f.cursor
	f.mu.Unlock()
	if cursor == (refdb.Cursor{}) {
		// What was before is found by comparing all.
		end, err := f.db.HistoryEnd(ctx)
		if err != nil {
			return err
		}
		f.forgetAll()
		cursor = end
	}
	if err := f.readEpochs(ctx); err != nil {
		return err
	}
	saved, every := time.Now(), saveIdle
	for page, err := range f.db.Changes(ctx, refdb.ChangeQuery{After: cursor}) {
		if err != nil {
			return err
		}
		if len(page.Changes) > 0 {
			every = saveEvery
		}
		for _, c := range page.Changes {
			// What this daemon has written it has read here.
			if c.Owner != f.db.Owner() {
				f.queue.add(c.Project, c.Ref)
				f.o.Changed(c.Project, c.Ref)
			}
		}
		f.mu.Lock()
		f.cursor = page.Cursor
		f.mu.Unlock()
		if time.Since(saved) >= every {
			f.save(ctx)
			saved, every = time.Now(), saveIdle
		}
	}
	return ctx.Err()
}

// startOver compares all repositories, and goes on from the present: the place in the changes is good no more.
func (f *Follower) startOver(ctx context.Context, why error) {
	f.o.Logger.WarnContext(ctx, "the changes since the last look can't be read: all repositories are compared", "rewound", errors.Is(why, refdb.ErrRewound))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cursor = refdb.Cursor{}
}

// readEpochs learns where epochs began: positions after that may have been used before.
func (f *Follower) readEpochs(ctx context.Context) error {
	s, err := f.db.HistoryState(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epochs = s.Epochs
	return nil
}

// work brings up one repository after the other.
func (f *Follower) work(ctx context.Context) {
	for {
		project, w, ok := f.queue.Next(ctx)
		if !ok {
			return
		}
		w.unplaced = 0
		again, err := f.catchUp(ctx, project, w)
		switch {
		case errors.Is(err, config.ErrNotConfigured):
			// If it comes back, as after a move, it is compared as a whole.
			f.forgetIdentity(project)
			err, again = nil, work{}
		case err != nil && ctx.Err() == nil:
			f.failures.Add(1)
			f.log(ctx, "a repository can't be brought up; trying again: see `refdbctl site status`", err, "project", f.o.Digest(project, ""), "pack", packs.HeldBy(err))
		}
		f.recordResult(project, again, err)
		f.queue.done(project, again)
	}
}

// recordResult records whether a repository is behind, and why.
func (f *Follower) recordResult(project string, again work, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failing := f.failed[project]
	switch {
	case err == nil && again.empty():
		delete(f.failed, project)
		return
	case err == nil:
		err = fmt.Errorf("%d refs are behind: %s", len(again.refs), again.reason)
	}
	if !failing {
		before.Since = time.Now()
	}
	f.failed[project] = Failure{project, err.Error(), before.Since, again.unplaced, packs.HeldBy(err)}
}

// behindFor returns how long a repository has been behind.
func (f *Follower) behindFor(project string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if failure, behind := f.failed[project]; behind {
		return time.Since(failure.Since)
	}
	return 0
}

// catchUp unpacks what is new for a repository, and moves refs. It returns what is left to do.
func (f *Follower) catchUp(ctx context.Context, project string, w work) (again work, err error) {
	c, r, err := f.ruled(ctx, project)
	if err != nil {
		return w, err
	}
	repo, mark, release, err := f.open(ctx, project, r)
	if err != nil {
		return w, err
	}
	defer release()
	mover := &claimedMoves{Follower: f, r: r, repo: repo, waits: w.held}
	here := catchup.Copy{Config: c, DB: f.db, Repo: repo, Project: project, Mover: mover, Whole: mark.IsWhole}
	refs := w.guarded(c, project)
	err = f.receive(ctx, project, repo, mark, refs)
	if err != nil && ctx.Err() == nil {
		if mended, failed := here.MendBroken(ctx); failed == nil && mended {
			err = f.receive(ctx, project, repo, mark, refs)
		}
	}
	if err != nil {
		return w, err
	}
	startOver := false
	here.Each = func(s catchup.Synced) {
		switch s.Result {
		case catchup.Created, catchup.Updated, catchup.Deleted:
			f.moved.Add(1)
		case catchup.Moved:
			if !s.Local.Equivalent(s.Global) && s.Global != refdb.Unknown {
				again.add(s.Ref, "moved meanwhile")
			}
		default:
			if s.Result == catchup.Missing {
				// The first time its pack may have come after the list.
				startOver = w.missing
				again.missing = true
			}
			if s.Result == catchup.Failed || s.Result == catchup.Held && f.behindFor(project) > heldFor {
				again.unplaced++
			}
			again.add(s.Ref, s.Ref+": "+s.Detail)
		}
	}
	if w.all {
		_, err = here.All(ctx)
	} else if len(refs) > 0 {
		err = here.Refs(ctx, refs)
	}
	if err == nil && startOver {
		_, err = f.receiver(ctx, project, repo, mark, nil).StartOver(ctx)
	}
	if err == nil && (w.all || w.refs[head.Ref]) {
		err = f.settleHead(ctx, repo, r)
	}
	if err != nil {
		w.unplaced = again.unplaced
		return w, err
	}
	again.held = mover.held && !again.empty()
	return again, nil
}

// open returns a project's repository, which is kept from being pruned until release, and its mark.
func (f *Follower) open(ctx context.Context, project string, r config.Repository) (repo *gitrepo.Repo, mark *packs.Mark, release func(), err error) {
	if err := f.o.State.AwaitInheritance(ctx); err != nil {
		return nil, nil, nil, err
	}
	if err := f.o.Witness.MayAct(ctx); err != nil {
		return nil, nil, nil, err
	}
	if err := f.o.Mover.AwaitEarlier(ctx, r.Path); err != nil { // HEAD has no claim
		return nil, nil, nil, err
	}
	if release, err = f.o.Pruning.Protect(ctx, r.Path); err != nil {
		return nil, nil, nil, err
	}
	if repo, err = gitrepo.OpenDir(r.Path); err == nil {
		mark, err = f.markOf(project, repo)
	}
	if err != nil {
		release()
		return nil, nil, nil, err
	}
	return repo, mark, release, nil
}

// receive unpacks what is new. Refs are those that the packs are likely to build on.
func (f *Follower) receive(ctx context.Context, project string, repo *gitrepo.Repo, mark *packs.Mark, refs []string) error {
	return f.receiver(ctx, project, repo, mark, refs).Receive(ctx)
}

func (f *Follower) receiver(ctx context.Context, project string, repo *gitrepo.Repo, mark *packs.Mark, refs []string) packs.Receiver {
	return packs.Receiver{DB: f.db, Repo: repo, Project: project, Mark: mark, Refs: refs, Limits: f.unpack,
		Each:      func(p driver.Pack) { f.received.Add(1); f.bytes.Add(uint64(p.Size)) },
		Malformed: func(p driver.Pack, objection string) { f.FoundMalformed(ctx, project, p, objection) }}
}

// markOf returns the mark of a repository, as the present epoch allows.
func (f *Follower) markOf(project string, repo *gitrepo.Repo) (*packs.Mark, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	there, err := packs.ReadMark(repo.Dir())
	if err != nil {
		return nil, err
	}
	mark := f.marks[project]
	if mark == nil || mark.ID != there.ID { // another repository may have taken its place
		mark = there
		f.marks[project] = mark
	}
	if len(f.epochs) == 0 {
		return nil, errors.New("the database's history was not read yet")
	}
	mark.Enter(f.epochs)
	return mark, nil
}

func (f *Follower) log(ctx context.Context, what string, err error, args ...any) {
	if err != nil && ctx.Err() == nil {
		f.o.Logger.WarnContext(ctx, what, append(args, "class", refdb.ClassOf(err).String())...)
	}
}
