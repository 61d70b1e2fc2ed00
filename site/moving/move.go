// Package moving takes moves of refs through their life at a site: it announces them to the
// database as intents, and ends the intents by what the repository then holds. It knows the moves
// that are under way, the intents that only an operator can resolve, and those that earlier daemons
// left.
package moving

import (
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
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

	// Over says that the transaction has ended: its process won't move the ref any more.
	Over atomic.Bool
	// EndedByOthers says that another request than this daemon's has ended the intent: an
	// operator's, or one whose reply was lost.
	EndedByOthers atomic.Bool
	// Adopted says that the intent was found in the database.
	Adopted bool
	// OnList says that the move is on the list of moves.
	OnList atomic.Bool
}

// MovesOf returns the moves that p announces in the repository at path.
func MovesOf(p intents.Preparation, path string, since time.Time) (moves []*Move) {
	for _, u := range p.Updates {
		moves = append(moves, &Move{
			Project: p.Project, Path: path, Owner: p.Owner, Token: p.Token, By: p.By, Op: p.Op, Update: u, Recorded: p.Time, Since: since,
		})
	}
	return moves
}

// MoveOf returns the move that an intent found in the database announces.
func MoveOf(i driver.Intent) *Move {
	return &Move{
		Project: i.Project, Owner: i.Owner, Token: i.Token, By: i.By, Op: i.Op, Update: refdb.Update{Ref: i.Ref, Old: i.Old, New: i.New},
		Recorded: i.Time, Since: time.Now().Add(-i.Age), Adopted: true,
	}
}

// MovesOfIntents returns the moves of intents that were found in the database.
func MovesOfIntents(intents []driver.Intent) []*Move {
	moves := make([]*Move, len(intents))
	for i, one := range intents {
		moves[i] = MoveOf(one)
	}
	return moves
}

// A Key names an intent.
type Key struct {
	Project string      `json:"project"`
	Ref     string      `json:"ref"`
	Token   refdb.Token `json:"token"`
}

// KeyOf returns the name of an intent.
func KeyOf(i driver.Intent) Key { return Key{i.Project, i.Ref, i.Token} }

// Key returns the name of the intent that announces m.
func (m *Move) Key() Key { return Key{m.Project, m.Ref, m.Token} }
