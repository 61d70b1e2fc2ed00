package site

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hooks"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/sessions"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// BePatient lets what others take until the daemon gives them up be so long that only a hang reaches it. It is called before Run.
func (d *Daemon) BePatient(limit time.Duration) {
	d.state.Outage = 0 // tests take the database away
	d.limits = limits{request: limit, lockFiles: limit}
	d.hooks.Limits = hooks.Limits{Answer: limit, Snapshot: limit, Fresh: limit, Reread: limit, Waiting: hooks.DefaultLimits().Waiting}
	d.SetSessionLimits(sessions.Limits{Decision: 3 * limit, Silence: limit, Write: limit})
}

// SetSessionLimits changes the limits of sessions that begin from now on.
func (d *Daemon) SetSessionLimits(l sessions.Limits) { d.guards.SetLimits(l) }

// SetLockPatience changes how long a boot waits for running gits. It is called before Run.
func (d *Daemon) SetLockPatience(limit time.Duration) { d.limits.lockFiles = limit }

// SetOutage changes in how long an outage of the database pushes wait. It is called before Run.
func (d *Daemon) SetOutage(limit time.Duration) { d.state.Outage = limit }

// LetNobodyWait has no push wait for the database. It is called before Run.
func (d *Daemon) LetNobodyWait() { d.hooks.Limits.Waiting = 0 }

// HaveAlone waits until nobody shares the repository at path, as maintenance does.
func (d *Daemon) HaveAlone(ctx context.Context, path string) (release func(), err error) {
	return d.pruning.Exclusive(ctx, path)
}

// SetReadersWait changes after how long a reader of moves is answered if nothing moves. It is called before Run.
func (d *Daemon) SetReadersWait(wait time.Duration) { d.readers.Wait = wait }

// SetRulesLook changes for how long a transaction goes by one look at the rules. It is called before Run.
func (d *Daemon) SetRulesLook(limit time.Duration) { d.policy.Decision = limit }

// LetSnapshotsAge has what was read when a push began be too old for its first update. It is called before Run.
func (d *Daemon) LetSnapshotsAge() { d.hooks.Limits.Fresh = 0 }

// SetSettle changes for how long pushes are refused after a change of rules. It is called before Run.
func (d *Daemon) SetSettle(settle time.Duration) { d.projects.Settle = settle }

// A Clock is ahead of the machine's clocks by as much as a test says.
type Clock struct{ ahead atomic.Int64 }

// Advance sets the clock forward.
func (c *Clock) Advance(by time.Duration) { c.ahead.Add(int64(by)) }

// UseClock makes the ages of sessions, of the site's Gerrit and of the known rules those of a clock. It is called before Run.
func (d *Daemon) UseClock(c *Clock) {
	now := func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
	d.guards.Now, d.gerrit.Now = now, now
	d.projects.Clock = func() (time.Duration, error) {
		up, err := projects.Uptime()
		return up + time.Duration(c.ahead.Load()), err
	}
}

// HurryStop bounds how long the daemon waits when it stops, if something is under way that need not end by itself.
func (d *Daemon) HurryStop(limit time.Duration) {
	if d.moving.Count()+d.guards.Pending() > 0 || d.state.Presence.Lost() != nil || d.state.Health() != nil {
		c := *d.state.Config()
		c.StopTimeout = min(c.StopTimeout, limit)
		d.state.SetConfig(&c)
	}
}

// PatientRepair is [Repair] with the patience of BePatient.
func PatientRepair(ctx context.Context, c *config.Config, db *refdb.DB, limit time.Duration) (client.Status, error) {
	d := New(c, db, Options{})
	d.BePatient(limit)
	return d.repair(ctx, c)
}

// WaitingForClaims counts the transactions that wait for others.
func (d *Daemon) WaitingForClaims() int { return d.claims.Waiting() }

// MaintainDue does what a daemon does every few minutes.
func (d *Daemon) MaintainDue() { d.maintainer.MaintainDue(d.state.Upkeep) }

// Maintaining holds the turn of maintenance until the function is called that it returns.
func (d *Daemon) Maintaining() (end func()) {
	d.maintainer.Enter(context.Background(), func() {})
	return d.maintainer.Leave
}

// SetUnpackLimits changes what git may use to unpack a pack of another site. It is called before Run.
func (d *Daemon) SetUnpackLimits(l gitrepo.UnpackLimits) { d.follower.SetUnpackLimits(l) }

// SurveyNow surveys the site, as a daemon that exports metrics does every few minutes.
func (d *Daemon) SurveyNow(ctx context.Context) { d.survey.take(ctx, d) }

// BreakMoves lets moves not be listed until mend is called.
func (d *Daemon) BreakMoves() (mend func(), err error) {
	dir := moves.Dir(d.state.Config().State)
	if err := os.Rename(dir, dir+".away"); err != nil {
		return nil, err
	}
	err = os.WriteFile(dir, nil, 0o600)
	d.list.Close() // last: the daemon opens it again by itself where it can
	return func() { os.Remove(dir) }, err
}

// FollowRemoval moves the repository of a project aside, if it is to be, and returns where to.
func (d *Daemon) FollowRemoval(ctx context.Context, project string) (to string, err error) {
	return d.lifecycle.FollowRemoval(ctx, d.state.Config(), project)
}

// LookAtGerrit looks at the site's Gerrit.
func (d *Daemon) LookAtGerrit(ctx context.Context) { d.gerrit.Look(ctx) }

// CloneNow clones a project as the daemon does by itself.
func (d *Daemon) CloneNow(ctx context.Context, project string) error {
	_, err := d.lifecycle.Clone(ctx, d.state.Config(), project)
	return err
}

// LookForVanished looks for repositories that are gone, as at a time.
func (d *Daemon) LookForVanished(now time.Time) { d.lifecycle.LookForVanished(d.state.Work, now) }

// Share keeps a repository from being had alone until the function is called that it returns.
func (d *Daemon) Share(ctx context.Context, path string) (release func(), err error) {
	return d.pruning.Protect(ctx, path)
}

// AwaitedAlone reports whether somebody waits to have a repository alone.
func (d *Daemon) AwaitedAlone(path string) bool { return d.pruning.Awaited(path) }

// Answer answers a request of a hook as a connection would, of which ctx is the daemon's.
func (d *Daemon) Answer(ctx context.Context, conn *net.UnixConn, q io.Reader) wire.Response {
	peer, err := pusher.HookOf(conn)
	return d.respond(ctx, conn, bufio.NewReader(q), peer, err)
}

// BeginStop has the daemon stop, as far as its answers show it.
func (d *Daemon) BeginStop() { d.state.Stop() }

// Project returns what the daemon knows of a project.
func (d *Daemon) Project(name string) (projects.Known, bool) { return d.projects.Get(name) }
