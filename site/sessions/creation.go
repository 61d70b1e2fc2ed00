package sessions

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// maxCreations bounds the creations of a guard that are not settled.
const maxCreations = 100

// A creation makes a repository of a new project here. The rules are in PROTOCOL.md, M19 to M22.
// The lock of guards guards what changes after it has begun.
type creation struct {
	request
	dir     string
	repo    config.Repository // without a path until it is known that it can be made
	project string            // the ID of the project; "" as long as nothing was reserved
}

// createAsked takes a guard's question whether it may make a repository. The guards are locked.
func (gs *Guards) createAsked(s *session, m wire.Create) bool {
	g := s.guard
	id := pusher.Transaction{Guard: g.id, TX: m.TX}
	if g.transactions[m.TX] != nil || gs.creations[id] != nil {
		s.send(wire.Fault{Text: "transaction " + m.TX + " was announced before"})
		return false
	}
	count := 0
	for other := range gs.creations {
		if other.Guard == g.id {
			count++
		}
	}
	if count >= maxCreations {
		s.send(wire.Refused{TX: m.TX, Kind: wire.Final, Reason: string(refusal.TooMany), Lines: []string{wire.TooManyTransactions}})
		return true
	}
	ctx, cancel := context.WithCancelCause(gs.State.Work)
	cr := &creation{request: request{id: id, session: s, cancel: cancel}, dir: m.Dir}
	gs.addCreation(cr)
	gs.State.Tasks.Go(func() {
		defer cancel(nil)
		gs.decideCreation(ctx, cr, s, m.Limit)
	})
	return true
}

func (gs *Guards) addCreation(cr *creation) {
	if gs.creations == nil {
		gs.creations = map[pusher.Transaction]*creation{}
	}
	gs.creations[cr.id] = cr
	if cr.project != "" {
		gs.Projects.Creating.Add(cr.repo.Project)
	}
}

// decideCreation decides about a creation, and tells the guard. Ctx ends with [errCancelled] once
// nobody waits for the answer.
func (gs *Guards) decideCreation(ctx context.Context, cr *creation, s *session, limit time.Duration) {
	if err := gs.reserve(ctx, cr, limit); !gs.answer(ctx, &cr.request, s, 0, err) {
		gs.settleCreation(gs.State.Work, cr)
	}
}

// reserve reserves the name of a project for the site that creates it. If it returns nil, the
// database has the project, unless no rule guards the project.
func (gs *Guards) reserve(ctx context.Context, cr *creation, limit time.Duration) error {
	c := gs.State.Config()
	ctx, cancel := context.WithTimeout(ctx, min(limit-min(answerReserve, limit/4), gs.answerWithin(c)))
	defer cancel()
	r, err := c.NewRepository(cr.dir)
	if err != nil {
		return refusal.Because(refusal.NotConfigured, err)
	}
	known, ok := gs.Projects.Get(r.Project)
	if !ok && !c.GuardsProject(r.Project) {
		return nil
	}
	if gs.Hook == "" {
		return refusal.Because(refusal.NotConfigured, errors.New(wire.NoHookProgram))
	}
	if err := gs.State.AwaitServing(ctx); err != nil {
		return err
	}
	now, err := projects.Uptime()
	if err != nil {
		return err
	}
	if known.Mode == config.Removed && now < known.Settled {
		return refusal.Lines{wire.JustRemoved(r.Project, known.Settled-now+time.Second)}
	}
	if err := gs.noteCreation(cr, r); err != nil {
		return err
	}
	row, err := projects.Create(ctx, c, gs.DB, r.Project, cr.project)
	if err != nil {
		if refdb.ClassOf(err) != refdb.OutcomeUnknown {
			gs.nothingReserved(cr)
		}
		if refusal.ReasonOf(err) == refusal.Exists && gs.Follower.Knows(r.Project) {
			err = refusal.Because(refusal.Exists, refusal.Lines{"the project " + r.Project + ": " + wire.ProjectVanished(r.Project)})
		}
		return projects.NotRegistered(err)
	}
	if now, err = projects.Uptime(); err != nil {
		return err
	}
	gs.Projects.Read(row, now)
	return nil
}

// nothingReserved records that the database has no project of a creation, and won't get one.
func (gs *Guards) nothingReserved(cr *creation) {
	gs.lock()
	defer gs.unlock()
	cr.project = ""
	gs.Projects.Creating.Remove(cr.repo.Project)
}

// noteCreation gives a creation its project's ID, and records it durably, if nothing is at the
// repository's path.
func (gs *Guards) noteCreation(cr *creation, r config.Repository) error {
	gs.lock()
	if gs.creationAt(r.Path) != nil {
		gs.unlock()
		return refusal.Because(refusal.Exists, errors.New(wire.BeingCreated(r.Project)))
	}
	switch _, err := os.Lstat(r.Path); {
	case err == nil:
		gs.unlock()
		return refusal.Because(refusal.Exists, errors.New(wire.PathTaken(r.Path)))
	case !errors.Is(err, fs.ErrNotExist):
		gs.unlock()
		return err
	}
	cr.repo, cr.project = r, rand.Text()
	gs.Projects.Creating.Add(r.Project)
	gs.unlock()
	err := gs.saveCreations()
	if err != nil {
		gs.nothingReserved(cr)
	}
	return err
}

// creationAt returns the creation of the repository at path; nil if there is none. The guards are
// locked.
func (gs *Guards) creationAt(path string) *creation {
	for _, cr := range gs.creations {
		if cr.repo.Path == path {
			return cr
		}
	}
	return nil
}

// creationReported takes the report of a creation, if it is one. The guards are locked.
func (gs *Guards) creationReported(s *session, m wire.Report) bool {
	cr := gs.creations[pusher.Transaction{Guard: s.guard.id, TX: m.TX}]
	if cr == nil {
		return false
	}
	cr.session, cr.reported = s, true
	if cr.end() {
		gs.State.Tasks.Go(func() { gs.settleCreation(gs.State.Work, cr) })
	}
	return true
}

// leaveCreations is called when a guard's session has ended, or another one takes its place. The
// guard reports the creations that were granted later. The guards are locked.
func (gs *Guards) leaveCreations(g *guard) {
	for id, cr := range gs.creations {
		if id.Guard == g.id {
			cr.leave()
		}
	}
}
