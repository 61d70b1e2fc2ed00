package guards

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/intent"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/lifecycle"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Site is what guards ask of the daemon.
type Site interface {
	// Config returns the configuration as it is now.
	Config() *config.Config
	// Boot names the boot of the machine.
	Boot() string
	// Work ends when the daemon ends its work.
	Work() context.Context
	// Started is closed when pushes can be decided about.
	Started() <-chan struct{}
	// Health returns how the latest request to the database ended.
	Health() error
	// AwaitServing waits until the daemon can decide about pushes, at most until ctx ends.
	AwaitServing(ctx context.Context) error
	// AwaitEarlierFollowers returns an error while a git follows the database in the repository at path that an earlier daemon has let
	// through. It does not wait long.
	AwaitEarlierFollowers(ctx context.Context, path string) error
	// Lost returns why the daemon does not hold its site's name; nil if it does.
	Lost() error
	// MayAct returns an error unless what the database says may be acted on.
	MayAct(ctx context.Context) error
	// Share keeps the repository at path from being pruned until release is called.
	Share(ctx context.Context, path string) (release func(), err error)
	// GuardedLines returns the lines of a transaction whose refs are guarded, and the configuration with the project's rules.
	GuardedLines(ctx context.Context, c *config.Config, r config.Repository, body []byte) (*config.Config, []wire.Line, error)
	// UnderWay returns the refusal of moves if a push over git of one of their refs is not settled.
	UnderWay(project string, moves []refdb.Update) error
	// LookAgain lets the follower look at the refs of moves that were refused because this site is behind.
	LookAgain(r config.Repository, moves []refdb.Update)
	// LetThrough records lines of a transaction that err would have refused, were its project not in mode log.
	LetThrough(project, by string, lines []wire.Line, err error)
	// Resolve ends intents by what the repository has, and returns those that have ended. The caller must know that nobody makes the moves
	// any more.
	Resolve(ctx context.Context, moves []*intent.Move) (ended []*intent.Move, err error)
	// StillPending returns the moves that the database still has as pending intents.
	StillPending(ctx context.Context, moves []*intent.Move) ([]*intent.Move, error)
	// ClearAlarms removes the alarms about moves that have ended.
	ClearAlarms(moves []*intent.Move)
	// RequestReconcile makes the daemon reconcile soon.
	RequestReconcile()
	// LogRefusal logs an error that has refused something.
	LogRefusal(ctx context.Context, err error)
}

// Counts count what guards do.
type Counts interface {
	// Accepted counts a transaction that was let through.
	Accepted()
	// Refused counts a transaction that was refused, and its refs.
	Refused(refs int)
	// Reason counts an answer that refused, by its reason.
	Reason(why refusal.Reason)
	// Answered notes how long a guard waited for the answer to an announcement.
	Answered(took time.Duration)
	// Died counts a guard that has died and left something to settle.
	Died()
	// Alarm counts an alarm.
	Alarm()
}

// Needs are what guards work with.
type Needs struct {
	DB        *refdb.DB
	Projects  *projects.Cache
	Follower  *follow.Follower
	Claims    *claims.Claims
	Intents   *intent.Open
	Pruning   *maintenance.Pruning
	Storage   *objects.Storage
	Lifecycle *lifecycle.Lifecycle
	Moves     *moves.List
	Marks     *moves.Marks
	Logged    *modes.Logged
	Site      Site
	Counts    Counts
	Logger    *slog.Logger
	// Tasks are what the daemon waits for before it ends.
	Tasks *sync.WaitGroup
	// Digest returns what stands for a ref of a project in logs.
	Digest func(project, ref string) string
	// Hook is the path of the hook's program; "" if it is not there.
	Hook string
}

func (gs *Guards) logFailure(ctx context.Context, what string, err error) {
	failure.Log(ctx, gs.Logger, what, err)
}
