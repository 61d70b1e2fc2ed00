package pushmirror

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

const (
	// parallel is how many projects are pushed at once.
	parallel = 4
	// maxRefs bounds the refs of a project that are compared one by one. If more change, all are.
	maxRefs = 1000
	// retryFirst and retryLast are the pauses after a project could not be pushed.
	retryFirst = time.Second
	retryLast  = 30 * time.Second
	// saveEvery is how often the state is written while there is something to push, and saveIdle how
	// often while there is not: each of these writes is a change, too.
	saveEvery = 5 * time.Second
	saveIdle  = time.Hour
	// earlierFor is how long a git that the site before had started may still push. What is pushed
	// in this time is compared once more.
	earlierFor = time.Minute
	// compareEvery is how often all projects are compared with the mirror.
	compareEvery = 24 * time.Hour
)

// A state is the progress of a mirror, which the site that pushes next continues from: what changed
// before the cursor was pushed, except in the projects that are behind.
type state struct {
	Cursor string   `json:"cursor,omitempty"` // "": all projects are to be compared
	Behind []string `json:"behind,omitempty"`
}

// value returns the state as the database has it. If there is too much, all is to be compared.
func (s state) value() refdb.Value {
	text, err := json.Marshal(s)
	if err != nil || len(text) > driver.MaxValueBytes {
		return "{}"
	}
	return refdb.Value(text)
}

// A work is what is to be pushed of a project.
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

// A term is the time for which this site pushes to a mirror.
type term struct {
	*mirror
	grant grants.Grant
	asked time.Time // when the grant was last extended for sure, by this machine's clock
	queue *workqueue.Queue[work]
	began time.Time

	mu     sync.Mutex
	cursor refdb.Cursor // behind what the queue has got
	saved  refdb.Value
	failed map[string]client.Behind // by project; Age is not set
	since  map[string]time.Time     // since when they fail
	early  map[string]bool          // projects that were compared within earlierFor; nil after that
	ended  error                    // why the term has ended
}

func newTerm(x *mirror, a grants.Acquired, asked time.Time) *term {
	t := &term{
		mirror: x, grant: a.Grant, asked: asked, began: time.Now(), queue: workqueue.New(merge, retryFirst, retryFirst),
		failed: map[string]client.Behind{}, since: map[string]time.Time{}, early: map[string]bool{},
	}
	for _, row := range a.Values {
		t.saved = row.Value
	}
	var s state
	if json.Unmarshal([]byte(t.saved), &s) == nil {
		// A cursor that can't be read is the zero one: all is compared.
		t.cursor, _ = refdb.ParseCursor(s.Cursor)
		for _, project := range s.Behind {
			t.queue.Put(project, work{all: true})
		}
	}
	return t
}

// run pushes until ctx or the grant ends.
func (t *term) run(ctx context.Context) {
	own, end := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	for range parallel {
		tasks.Go(func() { t.work(own) })
	}
	tasks.Go(func() { t.read(own) })
	tasks.Go(func() { t.keepComparing(own) })
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

// failure returns why the term has ended, unless because this site no longer pushes.
func (t *term) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(t.ended, context.Canceled) {
		return nil
	}
	return t.ended
}

// keep extends the grant until ctx ends, or the grant is lost: then it returns why.
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

// read queues what changes, until ctx ends.
func (t *term) read(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.readFrom(ctx)
		if errors.Is(err, refdb.ErrPruned) || errors.Is(err, refdb.ErrRewound) {
			t.mu.Lock()
			t.cursor = refdb.Cursor{}
			t.mu.Unlock()
		}
		t.log(ctx, "changes for a push mirror can't be read; trying again", err)
		pause.For(ctx, retryFirst)
	}
}

func (t *term) readFrom(ctx context.Context) error {
	t.mu.Lock()
	cursor := t.cursor
	t.mu.Unlock()
	if cursor == (refdb.Cursor{}) {
		end, err := t.DB.HistoryEnd(ctx)
		if err != nil {
			return err
		}
		if err := t.queueAll(ctx); err != nil {
			return err
		}
		cursor = end
	}
	for page, err := range t.DB.Changes(ctx, refdb.ChangeQuery{After: cursor}) {
		if err != nil {
			return err
		}
		for _, c := range page.Changes {
			if t.config.Pushes(c.Project) && t.config.PushesRef(c.Ref) && c.Project != presence.Project {
				t.queue.Put(c.Project, work{refs: map[string]bool{c.Ref: true}})
			}
		}
		t.mu.Lock()
		t.cursor = page.Cursor
		t.mu.Unlock()
	}
	return ctx.Err()
}

// queueAll queues all projects, as the database has them now.
func (t *term) queueAll(ctx context.Context) error {
	if err := t.Projects.Validate(ctx, t.DB); err != nil {
		return err
	}
	for _, p := range t.Projects.All() {
		if t.pushes(p) {
			t.queue.Put(p.Project.Project, work{all: true})
		}
	}
	return nil
}

// pushes reports whether a project is pushed to the mirror.
func (t *term) pushes(p projects.Known) bool {
	return p.Mode != config.Removed && t.config.Pushes(p.Project.Project)
}

// keepComparing compares all again, now and then, and first what a late git of the site before may
// have moved.
func (t *term) keepComparing(ctx context.Context) {
	if !pause.For(ctx, earlierFor) {
		return
	}
	t.mu.Lock()
	early := t.early
	t.early = nil
	t.mu.Unlock()
	for project := range early {
		t.queue.Put(project, work{all: true})
	}
	for pause.For(ctx, compareEvery) {
		t.log(ctx, "the projects of a push mirror can't be compared; trying again", t.queueAll(ctx))
	}
}

// work pushes one project after the other.
func (t *term) work(ctx context.Context) {
	for {
		project, w, ok := t.queue.Next(ctx)
		if !ok {
			return
		}
		left, err := t.push(ctx, project, w)
		if ctx.Err() != nil {
			t.queue.Again(project, w, retryLast)
			return
		}
		if errors.Is(err, config.ErrNotConfigured) || err == nil && !left.all && len(left.refs) == 0 {
			err = nil
			t.queue.Done(project)
		} else {
			t.queue.Again(project, left, retryLast)
		}
		t.record(ctx, project, err)
	}
}

// record records how pushing a project has ended.
func (t *term) record(ctx context.Context, project string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.early != nil {
		t.early[project] = true
	}
	if err == nil {
		delete(t.failed, project)
		delete(t.since, project)
		return
	}
	t.failed[project] = client.Behind{Project: project, Reason: err.Error()}
	if _, failing := t.since[project]; !failing {
		t.since[project] = time.Now()
		t.Logger.WarnContext(ctx, "a project can't be pushed to a mirror; trying again: see `refdbctl site status`", "mirror", t.config.Name, "project", t.State.Digest(project, ""))
	}
}

// behind returns the projects that the mirror does not have as they are, the longest first.
func (t *term) behind() []client.Behind {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []client.Behind{}
	for project, b := range t.failed {
		b.Age = time.Since(t.since[project]).Seconds()
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b client.Behind) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), strings.Compare(a.Project, b.Project))
	})
	return all
}

// keepSaving writes the state while it changes, until ctx ends.
func (t *term) keepSaving(ctx context.Context) {
	var saved time.Time
	busy := false
	for pause.For(ctx, saveEvery) {
		was := busy
		busy = t.queue.Len() > 0
		if was || busy || time.Since(saved) >= saveIdle {
			t.save(ctx)
			saved = time.Now()
		}
	}
}

// save writes the state under the grant.
func (t *term) save(ctx context.Context) {
	t.mu.Lock()
	s, before := state{}, t.saved
	if t.cursor != (refdb.Cursor{}) {
		s.Cursor = t.cursor.String()
	}
	t.mu.Unlock()
	s.Behind = t.queue.Keys() // after the cursor: what comes between is pushed twice
	value := s.value()
	if value == before {
		return
	}
	ref := t.grant.Refs[0]
	err := t.DB.Update(ctx, t.grant.Project, []refdb.Update{{Ref: ref, Old: before, New: value}}, refdb.Under(t.grant.Owner, t.grant.Token, ref))
	if errors.Is(err, refdb.ErrMismatch) { // the reply to an earlier write was lost
		value, err = t.DB.Get(ctx, t.grant.Project, ref)
	}
	if err == nil {
		t.mu.Lock()
		t.saved = value
		t.mu.Unlock()
	}
	t.log(ctx, "how far a push mirror has come can't be recorded; trying again", err)
}

func (t *term) log(ctx context.Context, what string, err error) {
	failure.Log(ctx, t.Logger.With("mirror", t.config.Name), what, err)
}
