package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/intent"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// transactionEnded is told that git has committed or aborted a transaction. It reads the refs' values
// from the repository: the lines only name the refs. A line without values ends nothing, because
// inner transactions of git report like that while the ref still exists.
//
// Only faults of the request are errors: what can't be recorded now is recorded later.
func (d *Daemon) transactionEnded(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return err
	}
	d.moved.Raise(r.Path)
	d.lookAtHead(r, q, lines)
	defer d.logged.Over(r.Project, lines)
	var moves []*intent.Move
	defer func() { d.listUnannounced(r.Path, q, lines, moves) }()
	select {
	case <-d.started:
	case <-ctx.Done():
		return nil
	}
	a, err := hook.Agent(c.GitPrograms, q.Process, d.boot)
	if err != nil {
		return nil // the end of the process resolves
	}
	p := d.pushes.get(a)
	if p == nil || p.enter(ctx) != nil {
		return nil
	}
	defer p.leave()
	if hook.RunBy(a) != nil {
		// Git waits for its hooks. This one is no longer waited for, and git may have announced
		// the same moves again.
		return nil
	}
	for _, l := range lines {
		m := p.find(r.Project, l.Ref)
		if m == nil || l.OldZero() && l.NewZero() || !m.New.Equivalent(refdb.Value(l.New)) || !l.OldZero() && m.Old != refdb.Value(l.Old) {
			continue
		}
		moves = append(moves, m)
	}
	if q.State == wire.StateCommitted && len(moves) > 0 && renames(a) {
		p.renames = true
		return nil // the end of the process resolves
	}
	d.end(ctx, p, moves)
	return nil
}

// listUnannounced lists what a transaction of git has moved for which there is no intent: nobody finds these moves later.
func (d *Daemon) listUnannounced(path string, q wire.Request, lines []wire.Line, announced []*intent.Move) {
	if q.State != wire.StateCommitted {
		return
	}
	known := make(map[string]bool, len(announced))
	for _, m := range announced {
		known[m.Ref] = true
	}
	var refs []string
	for _, l := range lines {
		// Git's inner transactions have lines without values. A push to the branch that HEAD points to has one of HEAD.
		moved := strings.HasPrefix(l.Ref, "refs/") && !(l.OldZero() && l.NewZero()) || l.Ref == "HEAD" && l.Symbolic()
		if moved && !known[l.Ref] {
			refs = append(refs, l.Ref)
		}
	}
	d.list.Moved("", path, refs...)
}

// end resolves moves of p whose transaction has ended. What can't be recorded now is left to
// reconcile: the database has all that p knows.
func (d *Daemon) end(ctx context.Context, p *push, moves []*intent.Move) error {
	for _, m := range moves {
		m.Over.Store(true)
	}
	ended, err := d.resolve(ctx, moves)
	p.drop(ended)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "what became of a push could not be recorded yet", "refs", len(moves)-len(ended), "class", refdb.ClassOf(err).String())
		d.requestReconcile()
	}
	return err
}

// resolve ends intents by what the repository has, and returns those that have ended. If a ref has
// neither its old nor its new value, its intent stays and raises an alarm. The caller must know
// that the process that announced the moves will not move the refs any more.
func (d *Daemon) resolve(ctx context.Context, moves []*intent.Move) (ended []*intent.Move, err error) {
	groups := map[announcement][]*intent.Move{}
	var order []announcement
	for _, m := range moves {
		k := announcement{m.Project, m.Owner, m.Token}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], m)
	}
	var failures []error
	for _, k := range order {
		these, err := d.resolveTogether(ctx, k, groups[k])
		ended = append(ended, these...)
		failures = append(failures, err)
	}
	return ended, errors.Join(failures...)
}

// An announcement identifies the intents that were prepared together.
type announcement struct {
	project, owner string
	token          refdb.Token
}

func (d *Daemon) resolveTogether(ctx context.Context, of announcement, moves []*intent.Move) (ended []*intent.Move, err error) {
	path := moves[0].Path
	if path == "" {
		r, err := d.config.Load().Repository(of.project)
		if err != nil {
			for _, m := range moves {
				d.raiseAlarm(ctx, m, "its repository is gone, or not configured any more ("+wire.OneLine(err.Error())+"): bring it back, or run `refdbctl locks resolve`")
			}
			return nil, nil
		}
		path = r.Path
	}
	repo, err := gitrepo.OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, m := range moves {
			d.raiseAlarm(ctx, m, "its repository is gone ("+wire.OneLine(err.Error())+"): bring it back, or run `refdbctl locks resolve`")
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(moves, func(a, b *intent.Move) int { return strings.Compare(a.Ref, b.Ref) })
	for len(moves) > 0 {
		names := make([]string, len(moves))
		for i, m := range moves {
			names[i] = m.Ref
		}
		values, err := repo.Values(ctx, names)
		if broken := (*gitrepo.BrokenError)(nil); errors.As(err, &broken) {
			i := slices.Index(names, broken.Ref)
			gone, err := d.alarmAbout(ctx, repo, moves[i:i+1])
			if err != nil {
				return ended, err
			}
			ended = append(ended, gone...)
			moves = slices.Delete(slices.Clone(moves), i, i+1)
			continue
		}
		if err != nil {
			return ended, err
		}
		p := refdb.Preparation{Project: of.project, Owner: of.owner, Token: of.token, By: moves[0].By, Op: moves[0].Op, Time: moves[0].Recorded}
		_, logs := d.projects.Logs(of.project)
		var done, dropped, moved []string
		var these, odd []*intent.Move
		for _, m := range moves {
			switch local := refdb.Value(values[m.Ref]); {
			case local.Equivalent(m.New):
				done, moved = append(done, m.Ref), append(moved, m.Ref)
			case local.Equivalent(m.Old):
				dropped = append(dropped, m.Ref)
			case logs:
				dropped, moved = append(dropped, m.Ref), append(moved, m.Ref) // others were let through since
				d.logged.AddEnded(of.project, m.Ref, local)
			default:
				odd = append(odd, m)
				continue
			}
			these = append(these, m)
			p.Updates = append(p.Updates, m.Update)
		}
		// Before the database is told: a daemon that dies in between finds the intents, and lists the moves again.
		d.listResolved(path, these, moved)
		gone, err := d.alarmAbout(ctx, repo, odd)
		ended = append(ended, gone...)
		if err != nil || len(these) == 0 {
			return ended, err
		}
		// Once the database has a ref's new value, a crash of the machine must not bring back the
		// old one.
		if err := repo.Sync(done); err != nil {
			return ended, err
		}
		err = d.db.Finish(ctx, p, done, dropped)
		d.recordHealth(err)
		if err == nil {
			d.counters.updated.Add(uint64(len(done)))
			d.counters.dropped.Add(uint64(len(dropped)))
			d.clearAlarms(these)
			d.noteSettled(ctx, repo, of, these, done)
			return append(ended, these...), nil
		}
		if !errors.Is(err, refdb.ErrLockLost) && !errors.Is(err, refdb.ErrOutcomeUnknown) {
			return ended, err
		}
		// Some have ended already: by an operator, or by this very request.
		left, lookErr := d.stillPending(ctx, these)
		if lookErr != nil {
			return ended, errors.Join(err, lookErr)
		}
		if len(left) == len(these) {
			return ended, err
		}
		these = slices.DeleteFunc(these, func(m *intent.Move) bool { return slices.Contains(left, m) })
		for _, m := range these {
			m.EndedByOthers.Store(true)
		}
		d.clearAlarms(these)
		// An operator may have decided that the database keeps the old value, which is not one of a database that was set back.
		if done, err = d.thatHold(ctx, of.project, these, done); err != nil {
			d.o.Logger.WarnContext(ctx, "what others ended could not be noted in the repository", "repository", d.digest(of.project, ""), "class", refdb.ClassOf(err).String())
			done = nil
		}
		d.noteSettled(ctx, repo, of, these, done)
		ended, moves = append(ended, these...), left
	}
	return ended, nil
}

// listResolved lists those moves that were made, unless they are on the list.
func (d *Daemon) listResolved(path string, moves []*intent.Move, made []string) {
	moved := make(map[string]bool, len(made))
	for _, ref := range made {
		moved[ref] = true
	}
	var refs []string
	for _, m := range moves {
		if moved[m.Ref] && !m.OnList.Swap(true) {
			refs = append(refs, m.Ref)
		}
	}
	d.list.Moved("", path, refs...)
}

// alarmAbout raises an alarm about each move that is still pending and whose ref has neither value.
// It returns the moves that have ended. It asks the database first: after a move has ended, other
// moves may have followed.
func (d *Daemon) alarmAbout(ctx context.Context, repo *gitrepo.Repo, moves []*intent.Move) (ended []*intent.Move, err error) {
	if len(moves) == 0 {
		return nil, nil
	}
	left, err := d.stillPending(ctx, moves)
	if err != nil {
		return nil, err
	}
	for _, m := range moves {
		if !slices.Contains(left, m) {
			m.EndedByOthers.Store(true)
			ended = append(ended, m)
			continue
		}
		values, err := repo.Values(ctx, []string{m.Ref})
		if err != nil {
			d.raiseAlarm(ctx, m, "it can't be read here: "+wire.OneLine(err.Error()))
			continue
		}
		if local := refdb.Value(values[m.Ref]); !local.Equivalent(m.Old) && !local.Equivalent(m.New) {
			d.raiseAlarm(ctx, m, fmt.Sprintf("it was to move from %s to %s, and has %s here: make it one of the two, or run `refdbctl locks resolve`",
				m.Old.Abbrev(), m.New.Abbrev(), local.Abbrev()))
		}
	}
	d.clearAlarms(ended)
	return ended, nil
}

// raiseAlarm records that m is stuck, and logs that once.
func (d *Daemon) raiseAlarm(ctx context.Context, m *intent.Move, reason string) {
	d.alarms.Raise(m, reason, func() {
		d.counters.alarms.Add(1)
		d.o.Logger.ErrorContext(ctx, "a push can't be resolved: see `refdbctl site status`", "ref", d.digest(m.Project, m.Ref))
	})
}

// clearAlarms removes the alarms about moves that have ended.
func (d *Daemon) clearAlarms(moves []*intent.Move) {
	d.open.End(moves)
	d.alarms.Clear(moves)
}

// stillPending returns the moves that the database still has as pending intents.
func (d *Daemon) stillPending(ctx context.Context, moves []*intent.Move) ([]*intent.Move, error) {
	site := d.config.Load().Site
	f := refdb.IntentFilter{Project: moves[0].Project, Owner: site}
	if len(moves) == 1 {
		f.Ref = moves[0].Ref
	}
	tokens := map[string]refdb.Token{}
	for i, err := range d.db.Intents(ctx, f) {
		if err != nil {
			d.recordHealth(err)
			return nil, err
		}
		tokens[i.Ref] = i.Token
	}
	return slices.DeleteFunc(slices.Clone(moves), func(m *intent.Move) bool { return tokens[m.Ref] != m.Token }), nil
}

// thatHold returns those of the refs in done that the database has at the new value of their move.
func (d *Daemon) thatHold(ctx context.Context, project string, moves []*intent.Move, done []string) (held []string, err error) {
	want := map[string]refdb.Value{}
	for _, m := range moves {
		if slices.Contains(done, m.Ref) {
			want[m.Ref] = m.New
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	rows, err := d.db.GetAll(ctx, project, slices.Sorted(maps.Keys(want))...)
	for _, row := range rows {
		if row.Value.Equivalent(want[row.Name]) {
			held = append(held, row.Name)
		}
	}
	return held, err
}

// noteSettled records the new values of the refs in done. If it fails, these values are not protected from a database
// that is set back; the push succeeds.
func (d *Daemon) noteSettled(ctx context.Context, repo *gitrepo.Repo, of announcement, moves []*intent.Move, done []string) {
	if len(done) == 0 {
		return
	}
	named := make(map[string]bool, len(done))
	for _, ref := range done {
		named[ref] = true
	}
	var values []compare.Settled
	for _, m := range moves {
		if named[m.Ref] {
			values = append(values, compare.Settled{Ref: m.Ref, Value: m.New, At: m.Recorded})
		}
	}
	dir := repo.Dir()
	size, err := compare.NoteSettled(dir, values)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "what a push moved could not be noted in the repository", "repository", d.digest(of.project, ""))
		return
	}
	if d.sizes.Exceeded(dir, size) {
		d.tasks.Go(func() {
			if size, err := compare.CompactSettled(dir); err == nil {
				d.sizes.Compacted(dir, size)
			}
		})
	}
}
