package pushmirror

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/internal/workqueue"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

const (
	// pushers is how many changed projects are pushed at a time, beside one that the sweep compares.
	pushers = 8
	// maxRefs is the maximum number of refs of a project that are compared by name. If more refs
	// change, all refs of the project are compared.
	maxRefs = 1000
	// retryFirst and retryLast are the shortest and the longest pause before a failed project is
	// pushed again.
	retryFirst = time.Second
	retryLast  = 30 * time.Second
	// saveEvery is the shortest time between two records of the cursor in the database.
	saveEvery = time.Minute
	// orphanedFor is how long a git process may still push after its daemon was killed or its
	// connection broke. What such a process may have moved is compared again after that time.
	orphanedFor = time.Minute
	// sweepEvery is the time between two comparisons of all projects.
	sweepEvery = 24 * time.Hour
)

// work is the part of a project that has to be compared with the mirror.
type work struct {
	all  bool
	refs map[string]bool
}

func merge(a, b work) work {
	w := work{all: a.all || b.all, refs: a.refs}
	if w.refs == nil {
		w.refs = map[string]bool{}
	}
	maps.Copy(w.refs, b.refs)
	if w.all || len(w.refs) > maxRefs {
		return work{all: true}
	}
	return w
}

// A term is the time during which this site holds a mirror's grant.
//
// A term begins with a sweep: it compares all projects with the mirror. So no change is missed,
// whatever earlier terms did. The projects that have changed since the recorded cursor come first.
type term struct {
	*mirror
	grant   grants.Grant
	asked   time.Time // when the last successful request to extend the grant was sent
	changed *workqueue.Queue[work]
	swept   *workqueue.Queue[work]
	addresses
	outage outage

	mu      sync.Mutex
	cursor  refdb.Cursor // every change before it is in changed
	saved   refdb.Value  // the recorded cursor
	dirty   bool         // a change was queued since the cursor was recorded
	failed  map[string]string
	waiting map[string]time.Time // since when a project's change or failure waits
	again   map[string]bool      // projects to be compared after orphanedFor
	ended   error                // why the term has ended
}

func newTerm(x *mirror, a grants.Acquired, asked time.Time) *term {
	t := &term{
		mirror: x, grant: a.Grant, asked: asked,
		changed: workqueue.New(merge, retryFirst, retryFirst), swept: workqueue.New(merge, retryFirst, retryFirst),
		failed: map[string]string{}, waiting: map[string]time.Time{}, again: map[string]bool{},
	}
	for _, row := range a.Values {
		t.saved = row.Value
	}
	// Without a valid cursor only the sweep finds earlier changes.
	t.cursor, _ = refdb.ParseCursor(string(t.saved))
	return t
}

// run pushes until ctx or the grant ends.
func (t *term) run(ctx context.Context) {
	own, end := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	for range pushers {
		tasks.Go(func() { t.work(own, t.changed) })
	}
	tasks.Go(func() { t.work(own, t.swept) })
	tasks.Go(func() { t.read(own) })
	tasks.Go(func() { t.sweep(own) })
	tasks.Go(func() { t.compareOrphaned(own) })
	tasks.Go(func() { t.keepSaving(own) })
	end(t.keep(own))
	tasks.Wait()
	t.mu.Lock()
	t.ended = context.Cause(own)
	t.mu.Unlock()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.State.Config().Timeout)
	defer cancel()
	t.save(last)
	t.log(last, "a push mirror's grant can't be released", t.DB.Grants().Release(last, t.grant))
}

// failure returns why the term has ended; nil if this site has stopped.
func (t *term) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(t.ended, context.Canceled) {
		return nil
	}
	return t.ended
}

// keep extends the grant until ctx ends or the grant is lost, and returns the reason.
func (t *term) keep(ctx context.Context) error {
	for {
		if !pause.For(ctx, min(extendEvery, time.Until(t.asked.Add(lastsFor)))) {
			return ctx.Err()
		}
		asked := time.Now()
		limited, cancel := context.WithDeadline(ctx, t.asked.Add(lastsFor))
		err := t.DB.Grants().Extend(limited, t.grant)
		cancel()
		switch {
		case err == nil:
			t.asked = asked
		case errors.Is(err, refdb.ErrLockLost), time.Since(t.asked) >= lastsFor:
			return err
		}
	}
}

// read queues the refs that change, until ctx ends.
func (t *term) read(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.readOn(ctx)
		if errors.Is(err, refdb.ErrPruned) || errors.Is(err, refdb.ErrRewound) {
			t.setCursor(refdb.Cursor{})
			t.log(ctx, "the projects of a push mirror can't be queued; trying again", t.queueAll(ctx))
		}
		t.log(ctx, "changes for a push mirror can't be read; trying again", err)
		pause.For(ctx, retryFirst)
	}
}

func (t *term) readOn(ctx context.Context) error {
	t.mu.Lock()
	cursor := t.cursor
	t.mu.Unlock()
	if cursor == (refdb.Cursor{}) {
		end, err := t.DB.HistoryEnd(ctx)
		if err != nil {
			return err
		}
		cursor = end
	}
	for page, err := range t.DB.Changes(ctx, refdb.ChangeQuery{After: cursor, Group: "push-mirrors"}) {
		if err != nil {
			return err
		}
		for _, c := range page.Changes {
			if t.config.Pushes(c.Project) && t.config.PushesRef(c.Ref) && c.Project != presence.Project {
				t.wait(c.Project)
				t.changed.Put(c.Project, work{refs: map[string]bool{c.Ref: true}})
			}
		}
		t.setCursor(page.Cursor)
	}
	return ctx.Err()
}

func (t *term) setCursor(c refdb.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cursor = c
}

// wait records that a change of a project is to be pushed.
func (t *term) wait(project string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty = true
	if t.waiting[project].IsZero() {
		t.waiting[project] = time.Now()
	}
}

// sweep queues all projects at the beginning of the term and then every sweepEvery, until ctx ends.
func (t *term) sweep(ctx context.Context) {
	for {
		err := t.queueAll(ctx)
		t.log(ctx, "the projects of a push mirror can't be queued; trying again", err)
		every := sweepEvery
		if err != nil {
			every = retryLast
		}
		if !pause.For(ctx, every) {
			return
		}
	}
}

// queueAll queues all projects that the database has now.
func (t *term) queueAll(ctx context.Context) error {
	if err := t.Projects.Refresh(ctx, t.DB); err != nil {
		return err
	}
	for _, p := range t.Projects.All() {
		if t.pushes(p) {
			t.swept.Put(p.Project.Project, work{all: true})
		}
	}
	return nil
}

// pushes reports whether a project is to be pushed to the mirror.
func (t *term) pushes(p projects.Known) bool {
	return p.Mode != config.Removed && packs.Stored(p.Project) && t.config.Pushes(p.Project.Project)
}

// compareOrphaned compares projects again that a git process may have moved without the knowledge
// of this term: a process of the site before, or one whose connection broke.
func (t *term) compareOrphaned(ctx context.Context) {
	for pause.For(ctx, orphanedFor) {
		t.mu.Lock()
		again := t.again
		t.again = map[string]bool{}
		t.mu.Unlock()
		for project := range again {
			t.swept.Put(project, work{all: true})
		}
	}
}

// mayBeOrphaned records that a git process without an owner may move refs of the project.
func (t *term) mayBeOrphaned(project string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.again[project] = true
}

// work pushes the projects of a queue, one at a time, until ctx ends.
func (t *term) work(ctx context.Context, queue *workqueue.Queue[work]) {
	began := time.Now()
	for {
		project, w, ok := queue.Next(ctx)
		if !ok || !t.outage.await(ctx) {
			return
		}
		if time.Since(began) < orphanedFor && queue == t.changed {
			t.mayBeOrphaned(project)
		}
		rest, err := t.push(ctx, project, w)
		if ctx.Err() != nil {
			return
		}
		if rest.all || len(rest.refs) > 0 {
			queue.Again(project, rest, retryLast)
		} else {
			queue.Done(project)
		}
		t.record(ctx, project, err)
	}
}

// record records the result of pushing a project.
func (t *term) record(ctx context.Context, project string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.failed, project)
		delete(t.waiting, project)
		return
	}
	if t.failed[project] == "" {
		t.Logger.WarnContext(ctx, "a project can't be pushed to a mirror; trying again: see `refdbctl site status`", "mirror", t.config.Name, "project", t.State.Digest(project, ""))
	}
	t.failed[project] = err.Error()
	if t.waiting[project].IsZero() {
		t.waiting[project] = time.Now()
	}
}

// behind returns the projects with changes that the mirror lacks, the one that waits longest first.
func (t *term) behind() []client.Behind {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []client.Behind{}
	for project, since := range t.waiting {
		all = append(all, client.Behind{Project: project, Reason: cmp.Or(t.failed[project], "it is being pushed, or waits for other projects"), Age: time.Since(since).Seconds()})
	}
	slices.SortFunc(all, func(a, b client.Behind) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), strings.Compare(a.Project, b.Project))
	})
	return all
}

// keepSaving records the cursor while there are changes, until ctx ends.
func (t *term) keepSaving(ctx context.Context) {
	for pause.For(ctx, saveEvery) {
		t.save(ctx)
	}
}

// save records the cursor, if a change was queued since the last record. Recording it is a change,
// too, but none that is pushed.
func (t *term) save(ctx context.Context) {
	t.mu.Lock()
	before, value, dirty := t.saved, refdb.Value(t.cursor.String()), t.dirty
	t.dirty = false
	t.mu.Unlock()
	if !dirty || value == "" || len(value) > driver.MaxValueBytes {
		return
	}
	ref := t.grant.Refs[0]
	err := t.DB.Update(ctx, t.grant.Project, []refdb.Update{{Ref: ref, Old: before, New: value}}, refdb.Under(t.grant.Owner, t.grant.Token, ref))
	if errors.Is(err, refdb.ErrMismatch) { // the reply to an earlier update was lost
		value, err = t.DB.Get(ctx, t.grant.Project, ref)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.saved = value
	} else {
		t.dirty = true
	}
	t.log(ctx, "the cursor of a push mirror can't be recorded; trying again", err)
}

func (t *term) log(ctx context.Context, what string, err error) {
	failure.Log(ctx, t.Logger.With("mirror", t.config.Name), what, err)
}
