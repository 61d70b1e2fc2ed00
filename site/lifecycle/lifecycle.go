// Package lifecycle creates and removes a site's repositories to match the projects in the
// database. It clones projects that have no repository here, moves the repositories of removed
// projects aside, removes projects whose repositories guards have deleted, detects repositories
// that have vanished, and cleans up after interrupted clones.
package lifecycle

import (
	"context"
	"log/slog"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/maintainer"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/sessions"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

// A Lifecycle creates and removes repositories to match their projects.
type Lifecycle struct {
	State      *serving.State
	DB         *refdb.DB
	Projects   *projects.Cache
	Witness    *witness.Witness
	Follower   *follow.Follower
	Guards     *sessions.Guards
	Maintainer *maintainer.Maintainer
	Pruning    *maintenance.Pruning
	Moves      *moves.List
	Logger     *slog.Logger
	// Hook is the path of the hook's program; "" if it is not there.
	Hook string

	cloner    *projectTasks // projects to clone (site.autoClone)
	removals  *projectTasks // projects whose repository may have to be moved aside (site.followRemoval)
	deletions deletions
	vanished  vanished
}

// New initializes k and returns it.
func New(k *Lifecycle) *Lifecycle {
	k.cloner, k.removals = newProjectTasks(), newProjectTasks()
	return k
}

// RowsChanged reports that the rows of these projects have changed.
func (k *Lifecycle) RowsChanged(names []string) {
	k.cloner.rowsChanged(names)
	k.removals.rowsChanged(names)
}

// Failures returns the projects with a failed task that is still to be retried, and the reasons.
func (k *Lifecycle) Failures() []client.Behind {
	c := k.State.Config()
	cloned := func(b client.Behind) bool { // by an operator, since the last attempt
		r, err := c.Repository(b.Project)
		return err == nil && install.IsGuardedBy(c, r)
	}
	return append(append(slices.DeleteFunc(k.cloner.failures(), cloned), k.removals.failures()...), k.deletions.failures()...)
}

// Gone returns the repositories that have vanished, in the order of their projects.
func (k *Lifecycle) Gone() []client.Behind {
	back := func(b client.Behind) bool { return !k.isVanished(b.Project) } // since the last check
	return slices.DeleteFunc(k.vanished.failures(), back)
}

func (k *Lifecycle) logFailure(ctx context.Context, what string, err error) {
	failure.Log(ctx, k.Logger, what, err)
}
