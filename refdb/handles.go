package refdb

import (
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/followers"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/refdb/packs"
	"github.com/globalrefdb/globalrefdb/refdb/projects"
	"github.com/globalrefdb/globalrefdb/refdb/recovery"
)

// An application needs nothing of what follows. It is for programs that move refs outside of the
// database, keep packs in it, or operate it.

// Intents returns a handle on the intents: moves that are announced before they are made outside of
// the database.
func (db *DB) Intents() *intents.Handle { return intents.New(db.engine) }

// Packs returns a handle on the packs of Git objects in the database.
func (db *DB) Packs() *packs.Handle { return packs.New(db.engine) }

// Projects returns a handle on the projects: their rows, counts of their refs, their removal.
func (db *DB) Projects() *projects.Handle { return projects.New(db.engine) }

// Followers returns a handle on the registered readers of the history.
func (db *DB) Followers() *followers.Handle { return followers.New(db.engine) }

// Recovery returns a handle on the comparisons of the database with what processes know, and on its
// recovery.
func (db *DB) Recovery() *recovery.Handle { return recovery.New(db.engine) }

// Grants returns a handle on locks that are named by owner and token, for a service without a state
// of its own.
func (db *DB) Grants() *grants.Handle { return grants.New(db.engine) }

// Audit returns a handle on the record of operators' actions.
func (db *DB) Audit() *audit.Handle { return audit.New(db.engine) }

// Operator returns a handle on what only operators' commands do.
func (db *DB) Operator() *operator.Handle { return operator.New(db.engine) }
