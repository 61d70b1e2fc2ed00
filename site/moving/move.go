// Package moving has what a daemon knows of its site's intents: the moves of refs that they announce, those that only an operator can
// resolve, and those that earlier daemons have left. It asks no database.
package moving

import (
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Move is a move of a ref that the database has as an intent.
type Move struct {
	Project string
	Path    string // of the repository; "" if it is to be found by the project
	Owner   string // of the intent: this daemon, or one before it
	Token   refdb.Token
	By, Op  string // who pushed, and the operation that recorded the intent, as far as known
	refdb.Update
	Recorded time.Time // the intent, by the database's clock
	Since    time.Time // by the clock of this machine

	// Over says that git's transaction has ended.
	Over atomic.Bool
	// EndedByOthers says that it has ended by another request than ours: an operator's, or one of ours whose reply was lost.
	EndedByOthers atomic.Bool
	// Adopted says that it was found in the database.
	Adopted bool
	// OnList says that it is on the list of moves.
	OnList atomic.Bool
}

// MovesOf returns the moves that p announces in the repository at path.
func MovesOf(p refdb.Preparation, path string, since time.Time) (moves []*Move) {
	for _, u := range p.Updates {
		moves = append(moves, &Move{
			Project: p.Project, Path: path, Owner: p.Owner, Token: p.Token, By: p.By, Op: p.Op, Update: u, Recorded: p.Time, Since: since,
		})
	}
	return moves
}

// MoveOf returns the move of an intent that was found in the database.
func MoveOf(i refdb.Intent) *Move {
	return &Move{
		Project: i.Project, Owner: i.Owner, Token: i.Token, By: i.By, Op: i.Op, Update: refdb.Update{Ref: i.Ref, Old: i.Old, New: i.New},
		Recorded: i.Time, Since: time.Now().Add(-i.Age), Adopted: true,
	}
}

// A Key names an intent.
type Key struct {
	Project string      `json:"project"`
	Ref     string      `json:"ref"`
	Token   refdb.Token `json:"token"`
}

// KeyOf returns the name of an intent.
func KeyOf(i refdb.Intent) Key { return Key{i.Project, i.Ref, i.Token} }

// Key returns the name of the intent that announces m.
func (m *Move) Key() Key { return Key{m.Project, m.Ref, m.Token} }
