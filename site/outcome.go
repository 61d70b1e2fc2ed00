package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// over hears that a transaction of git was committed or aborted. What became of
// its refs is read from the repository: the lines tell only which were meant. A line
// without values ends nothing, because git's inner transactions report so while
// the ref still stands.
//
// Nothing is reported back but faults of the request: what can't be recorded
// now is recorded later.
func (d *Daemon) over(ctx context.Context, hook peer, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return err
	}
	select {
	case <-d.started:
	case <-ctx.Done():
		return nil
	}
	a, err := hook.pusher(c, q.Process, d.boot)
	if err != nil {
		return nil // the end of the process resolves
	}
	p := d.pushes.get(a)
	if p == nil || p.enter(ctx) != nil {
		return nil
	}
	defer p.leave()
	if hook.stillOf(a) != nil {
		// Git waits for its hook: this one was given up, and git may have gone on
		// to announce the same moves again.
		return nil
	}
	var moves []*pending
	for _, l := range lines {
		m := p.find(r.Project, l.Ref)
		if m == nil || l.OldZero() && l.NewZero() || !same(m.New, refdb.Value(l.New)) || !l.OldZero() && m.Old != refdb.Value(l.Old) {
			continue
		}
		moves = append(moves, m)
	}
	d.end(ctx, p, moves)
	return nil
}

// end resolves moves of p that are over. What can't be recorded now is left to
// reconcile: the database knows as much of it as p.
func (d *Daemon) end(ctx context.Context, p *push, moves []*pending) error {
	for _, m := range moves {
		m.over = true
	}
	ended, err := d.resolve(ctx, moves)
	p.drop(ended)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "what became of a push could not be recorded yet", "refs", len(moves)-len(ended), "class", refdb.ClassOf(err).String())
		d.dirty()
	}
	return err
}

// resolve ends intents by what the repository has, and returns those that are
// ended. One whose ref has neither value stays, and raises an alarm. The caller
// must know that whoever announced them won't move the refs any more.
func (d *Daemon) resolve(ctx context.Context, moves []*pending) (ended []*pending, err error) {
	groups := map[announcement][]*pending{}
	var order []announcement
	for _, m := range moves {
		k := announcement{m.project, m.owner, m.token}
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

// An announcement names the intents that were prepared together.
type announcement struct {
	project, owner string
	token          refdb.Token
}

func (d *Daemon) resolveTogether(ctx context.Context, of announcement, moves []*pending) (ended []*pending, err error) {
	path := moves[0].path
	if path == "" {
		r, err := d.config.Load().Repository(of.project)
		if err != nil {
			for _, m := range moves {
				d.alarm(ctx, m, "its repository is gone, or not configured any more ("+oneLine(err.Error())+"): bring it back, or run `refdbctl locks resolve`")
			}
			return nil, nil
		}
		path = r.Path
	}
	repo, err := gitrepo.OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, m := range moves {
			d.alarm(ctx, m, "its repository is gone ("+oneLine(err.Error())+"): bring it back, or run `refdbctl locks resolve`")
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(moves, func(a, b *pending) int { return strings.Compare(a.Ref, b.Ref) })
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
		p := refdb.Preparation{Project: of.project, Owner: of.owner, Token: of.token}
		var done, dropped []string
		var these, odd []*pending
		for _, m := range moves {
			switch local := refdb.Value(values[m.Ref]); {
			case same(local, m.New):
				done = append(done, m.Ref)
			case same(local, m.Old):
				dropped = append(dropped, m.Ref)
			default:
				odd = append(odd, m)
				continue
			}
			these = append(these, m)
			p.Updates = append(p.Updates, m.Update)
		}
		gone, err := d.alarmAbout(ctx, repo, odd)
		ended = append(ended, gone...)
		if err != nil || len(these) == 0 {
			return ended, err
		}
		// Once the database says that a ref has moved, a crash of the machine must not
		// bring its old value back.
		if err := repo.Sync(done); err != nil {
			return ended, err
		}
		err = d.db.Finish(ctx, p, done, dropped)
		d.heard(err)
		if err == nil {
			d.counters.updated.Add(uint64(len(done)))
			d.counters.dropped.Add(uint64(len(dropped)))
			d.calm(these)
			return append(ended, these...), nil
		}
		if !errors.Is(err, refdb.ErrLockLost) && !errors.Is(err, refdb.ErrOutcomeUnknown) {
			return ended, err
		}
		// Some are ended already: by an operator, or by this very request.
		left, lookErr := d.standing(ctx, these)
		if lookErr != nil {
			return ended, errors.Join(err, lookErr)
		}
		if len(left) == len(these) {
			return ended, err
		}
		these = slices.DeleteFunc(these, func(m *pending) bool { return slices.Contains(left, m) })
		d.calm(these)
		ended, moves = append(ended, these...), left
	}
	return ended, nil
}

// alarmAbout raises an alarm about each of moves that still stands, and whose ref
// has neither value, and returns those that have ended. It looks at the database first:
// what has ended may have been followed by other moves.
func (d *Daemon) alarmAbout(ctx context.Context, repo *gitrepo.Repo, moves []*pending) (ended []*pending, err error) {
	if len(moves) == 0 {
		return nil, nil
	}
	left, err := d.standing(ctx, moves)
	if err != nil {
		return nil, err
	}
	for _, m := range moves {
		if !slices.Contains(left, m) {
			ended = append(ended, m)
			continue
		}
		values, err := repo.Values(ctx, []string{m.Ref})
		if err != nil {
			d.alarm(ctx, m, "it can't be read here: "+oneLine(err.Error()))
			continue
		}
		if local := refdb.Value(values[m.Ref]); !same(local, m.Old) && !same(local, m.New) {
			d.alarm(ctx, m, fmt.Sprintf("it was to move from %s to %s, and has %s here: make it one of the two, or run `refdbctl locks resolve`",
				short(m.Old), short(m.New), short(local)))
		}
	}
	d.calm(ended)
	return ended, nil
}

// standing are those of moves that the database still has as pending intents.
func (d *Daemon) standing(ctx context.Context, moves []*pending) ([]*pending, error) {
	site := d.config.Load().Site
	f := refdb.IntentFilter{Project: moves[0].project, Owner: site}
	if len(moves) == 1 {
		f.Ref = moves[0].Ref
	}
	tokens := map[string]refdb.Token{}
	for i, err := range d.db.Intents(ctx, f) {
		if err != nil {
			d.heard(err)
			return nil, err
		}
		tokens[i.Ref] = i.Token
	}
	return slices.DeleteFunc(slices.Clone(moves), func(m *pending) bool { return tokens[m.Ref] != m.token }), nil
}
