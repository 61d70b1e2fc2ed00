package sessions

import (
	"context"
	"log/slog"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

// Deps holds the dependencies of [Guards].
type Deps struct {
	State    *serving.State
	DB       *refdb.DB
	Projects *projects.Cache
	Witness  *witness.Witness
	Follower *follow.Follower
	Claims   *claims.Claims
	Moving   *moving.Coordinator
	Policy   *policy.Policy
	Pruning  *maintenance.Pruning
	Storage  *objects.Storage
	Moves    *moves.List
	Marks    *moves.Marks
	Logged   *modes.Logged
	Logger   *slog.Logger
	// NoteDeletion is called when a guard has deleted a repository. It returns the reason for
	// refusing that.
	NoteDeletion func(wire.Deleted) error
	// RemoveDeleted removes the projects of deletions that were noted.
	RemoveDeleted func(work context.Context)
	// Hook is the path of the hook's program; "" if it is not there.
	Hook string
}

func (gs *Guards) logFailure(ctx context.Context, what string, err error) {
	failure.Log(ctx, gs.Logger, what, err)
}
