package moving

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
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Resolve ends intents according to the repository, and returns the moves whose intents have ended.
// If a ref has neither its old nor its new value, its intent stays and raises an alarm. The caller
// must know that the process that announced the moves will not move the refs any more.
func (co *Coordinator) Resolve(ctx context.Context, moves []*Move) (ended []*Move, err error) {
	groups := map[announcement][]*Move{}
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
		these, err := co.resolveTogether(ctx, k, groups[k])
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

func (co *Coordinator) resolveTogether(ctx context.Context, of announcement, moves []*Move) (ended []*Move, err error) {
	path := moves[0].Path
	if path == "" {
		r, err := co.State.Config().Repository(of.project)
		if err != nil {
			for _, m := range moves {
				co.RaiseAlarm(ctx, m, "its repository is gone, or not configured any more ("+wire.OneLine(err.Error())+"): bring it back, or run `refdbctl locks resolve`")
			}
			return nil, nil
		}
		path = r.Path
	}
	repo, err := gitrepo.OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, m := range moves {
			co.RaiseAlarm(ctx, m, "its repository is gone ("+wire.OneLine(err.Error())+"): bring it back, or run `refdbctl locks resolve`")
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(moves, func(a, b *Move) int { return strings.Compare(a.Ref, b.Ref) })
	for len(moves) > 0 {
		names := make([]string, len(moves))
		for i, m := range moves {
			names[i] = m.Ref
		}
		values, err := repo.Values(ctx, names)
		if broken := (*gitrepo.BrokenError)(nil); errors.As(err, &broken) {
			i := slices.Index(names, broken.Ref)
			gone, err := co.alarmAbout(ctx, repo, moves[i:i+1])
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
		p := intents.Preparation{Project: of.project, Owner: of.owner, Token: of.token, By: moves[0].By, Op: moves[0].Op, Time: moves[0].Recorded}
		_, logs := co.Projects.Logs(of.project)
		var done, dropped, moved []string
		var these, odd []*Move
		for _, m := range moves {
			switch local := refdb.Value(values[m.Ref]); {
			case local.Equivalent(m.New):
				done, moved = append(done, m.Ref), append(moved, m.Ref)
			case local.Equivalent(m.Old):
				dropped = append(dropped, m.Ref)
			case logs:
				dropped, moved = append(dropped, m.Ref), append(moved, m.Ref) // others were let through since
				co.Logged.AddEnded(of.project, m.Ref, local)
			default:
				odd = append(odd, m)
				continue
			}
			these = append(these, m)
			p.Updates = append(p.Updates, m.Update)
		}
		// Before the request to the database: a daemon that dies in between finds the intents, and
		// lists the moves again.
		co.listResolved(path, these, moved)
		gone, err := co.alarmAbout(ctx, repo, odd)
		ended = append(ended, gone...)
		if err != nil || len(these) == 0 {
			return ended, err
		}
		// Once the database has a ref's new value, a crash of the machine must not bring back the
		// old one.
		if err := repo.Sync(done); err != nil {
			return ended, err
		}
		err = co.DB.Intents().Finish(ctx, p, done, dropped)
		co.State.RecordHealth(err)
		if err == nil {
			co.State.Counts.Updated.Add(uint64(len(done)))
			co.State.Counts.Dropped.Add(uint64(len(dropped)))
			co.ClearAlarms(these)
			co.noteSettled(ctx, repo, of, these, done)
			return append(ended, these...), nil
		}
		if !errors.Is(err, refdb.ErrLockLost) && !errors.Is(err, refdb.ErrOutcomeUnknown) {
			return ended, err
		}
		// Some have ended already: by an operator, or by this request.
		left, lookErr := co.StillPending(ctx, these)
		if lookErr != nil {
			return ended, errors.Join(err, lookErr)
		}
		if len(left) == len(these) {
			return ended, err
		}
		these = slices.DeleteFunc(these, func(m *Move) bool { return slices.Contains(left, m) })
		for _, m := range these {
			m.EndedByOthers.Store(true)
		}
		co.ClearAlarms(these)
		// An operator may have decided that the database keeps the old value. The database was not
		// set back then.
		if done, err = co.thatHold(ctx, of.project, these, done); err != nil {
			co.Logger.WarnContext(ctx, "what others ended could not be noted in the repository", "repository", co.State.Digest(of.project, ""), "class", refdb.ClassOf(err).String())
			done = nil
		}
		co.noteSettled(ctx, repo, of, these, done)
		ended, moves = append(ended, these...), left
	}
	return ended, nil
}

// listResolved adds the moves that were made to the list of moves, unless they are on it.
func (co *Coordinator) listResolved(path string, moves []*Move, made []string) {
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
	co.List.Moved("", path, refs...)
}

// alarmAbout raises an alarm about each move that is still pending and whose ref has neither value,
// and returns the moves that have ended. It asks the database first: after a move has ended, other
// moves may have followed.
func (co *Coordinator) alarmAbout(ctx context.Context, repo *gitrepo.Repo, moves []*Move) (ended []*Move, err error) {
	if len(moves) == 0 {
		return nil, nil
	}
	left, err := co.StillPending(ctx, moves)
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
			co.RaiseAlarm(ctx, m, "it can't be read here: "+wire.OneLine(err.Error()))
			continue
		}
		if local := refdb.Value(values[m.Ref]); !local.Equivalent(m.Old) && !local.Equivalent(m.New) {
			co.RaiseAlarm(ctx, m, fmt.Sprintf("it was to move from %s to %s, and has %s here: make it one of the two, or run `refdbctl locks resolve`",
				m.Old.Abbrev(), m.New.Abbrev(), local.Abbrev()))
		}
	}
	co.ClearAlarms(ended)
	return ended, nil
}

// RaiseAlarm records that m is stuck, and logs that once.
func (co *Coordinator) RaiseAlarm(ctx context.Context, m *Move, reason string) {
	co.Alarms.Raise(m, reason, func() {
		co.State.Counts.Alarms.Add(1)
		co.Logger.ErrorContext(ctx, "a push can't be resolved: see `refdbctl site status`", "ref", co.State.Digest(m.Project, m.Ref))
	})
}

// ClearAlarms removes the alarms about moves that have ended, and wakes those that wait for the
// refs.
func (co *Coordinator) ClearAlarms(moves []*Move) {
	co.Open.End(moves)
	co.Alarms.Clear(moves)
	co.wakeFor(moves)
}

// StillPending returns the moves that the database still has as pending intents.
func (co *Coordinator) StillPending(ctx context.Context, moves []*Move) ([]*Move, error) {
	site := co.State.Config().Site
	f := driver.IntentFilter{Project: moves[0].Project, Owner: site}
	if len(moves) == 1 {
		f.Ref = moves[0].Ref
	}
	tokens := map[string]refdb.Token{}
	for i, err := range co.DB.Intents().All(ctx, f) {
		if err != nil {
			co.State.RecordHealth(err)
			return nil, err
		}
		tokens[i.Ref] = i.Token
	}
	return slices.DeleteFunc(slices.Clone(moves), func(m *Move) bool { return tokens[m.Ref] != m.Token }), nil
}

// thatHold returns the refs in done that have their new value in the database.
func (co *Coordinator) thatHold(ctx context.Context, project string, moves []*Move, done []string) (held []string, err error) {
	want := map[string]refdb.Value{}
	for _, m := range moves {
		if slices.Contains(done, m.Ref) {
			want[m.Ref] = m.New
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	rows, err := co.DB.GetAll(ctx, project, slices.Sorted(maps.Keys(want))...)
	for _, row := range rows {
		if row.Value.Equivalent(want[row.Name]) {
			held = append(held, row.Name)
		}
	}
	return held, err
}

// noteSettled records the new values of the refs in done in the repository. If that fails, the push
// succeeds all the same, but a database that is set back goes unnoticed for these values.
func (co *Coordinator) noteSettled(ctx context.Context, repo *gitrepo.Repo, of announcement, moves []*Move, done []string) {
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
		co.Logger.WarnContext(ctx, "what a push moved could not be noted in the repository", "repository", co.State.Digest(of.project, ""))
		return
	}
	if co.sizes.Exceeded(dir, size) {
		co.State.Tasks.Go(func() {
			if size, err := compare.CompactSettled(dir); err == nil {
				co.sizes.Compacted(dir, size)
			}
		})
	}
}
