package moving

import (
	"context"
	"log/slog"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// Deps holds the dependencies of a [Coordinator].
type Deps struct {
	State    *serving.State
	DB       *refdb.DB
	Projects *projects.Cache
	Logged   *modes.Logged
	Claims   *claims.Claims
	Pruning  *maintenance.Pruning
	Storage  *objects.Storage
	List     *moves.List
	Mover    *mover.Mover
	Logger   *slog.Logger
	// Made is called when a preparation has used packs that were made of the repository at path.
	Made func(project, path string, packs []string)
}

// A Coordinator takes the moves of a site's refs through their life: it announces them to the
// database as intents, and ends the intents by what the repository then holds, never by what a
// process says.
type Coordinator struct {
	Deps
	Alarms Alarms
	Open   Open

	sizes compare.SettledSizes
	waits waits

	mu      sync.Mutex
	pending map[*Pending]bool
}

// End resolves moves of p whose transaction has ended. Reconcile retries whatever can't be recorded
// now: the database has all that p knows.
func (co *Coordinator) End(ctx context.Context, p *Pending, moves []*Move) error {
	for _, m := range moves {
		m.Over.Store(true)
	}
	ended, err := co.Resolve(ctx, moves)
	p.Drop(ended)
	co.wakeFor(ended) // again, for guards: UnderWay refuses them until here
	if err != nil {
		co.Logger.WarnContext(ctx, "what became of a push could not be recorded yet", "refs", len(moves)-len(ended), "class", refdb.ClassOf(err).String())
		co.State.Reconcile.Request()
	}
	return err
}
