package postgres

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// matches compares a row of locks with one of heldRows. A row that stands for
// an intent needs more than that: see releaseIntents.
const matches = matchesAny + `
AND NOT (` + isIntent + `)`

const matchesAny = `
CASE WHEN held_nonce <> '' THEN nonce = held_nonce AND owner = held_owner ELSE coalesce(token, 'epoch') = held_token END
AND (held_heartbeat IS NULL OR coalesce(heartbeat, 'epoch') = held_heartbeat)`

const (
	// heldRows are the arrays $1 to $6, n counting from 1.
	heldRows = `unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::timestamptz[])
  WITH ORDINALITY AS held (held_project, held_ref, held_token, held_nonce, held_owner, held_heartbeat, n)`

	// lockOfHeld is the lock that such a row names, if it matches, and where it is stored.
	lockOfHeld = `SELECT *, ctid AS tid FROM locks WHERE project = held_project AND ref = held_ref AND` + matches + ` LIMIT 1`
)

// heldArray is a list of Held in the order of their keys, which is the order
// that everybody locks rows in, each with its place in the caller's list.
type heldArray []indexedHeld

type indexedHeld struct {
	refdb.Held
	index int
}

func sortHeld(held []refdb.Held) heldArray {
	all := make(heldArray, len(held))
	for i, h := range held {
		all[i] = indexedHeld{h, i}
	}
	slices.SortStableFunc(all, func(a, b indexedHeld) int {
		return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
	})
	return all
}

// args are the arrays $1 to $6.
func (a heldArray) args() []any {
	projects, refs := make([]string, len(a)), make([]string, len(a))
	nonces, owners := make([]string, len(a)), make([]string, len(a))
	tokens, heartbeats := make([]time.Time, len(a)), make([]*time.Time, len(a)) // nil: any will do
	for i, h := range a {
		projects[i], refs[i] = h.Project, h.Ref
		tokens[i], nonces[i], owners[i] = h.Token.Time(), h.Nonce, h.Owner
		if !h.Heartbeat.IsZero() {
			heartbeats[i] = &h.Heartbeat
		}
	}
	return []any{projects, refs, tokens, nonces, owners, heartbeats}
}

// excluding is the beginning of a trip that ends these locks. A row that is named
// by its nonce may be that of an acquisition under way, which nobody sees yet:
// its keys have to be waited for.
func (a heldArray) excluding(what string) trip {
	t := trip{what: what, writes: true}
	var names []refName
	for _, h := range a {
		if h.Nonce != "" {
			names = append(names, refName{h.Project, h.Ref})
		}
	}
	if len(names) == 0 {
		return t
	}
	return t.lockNames(names)
}

// byToken reports whether the row is named by its token alone, as that of every
// lock is that somebody holds.
func byToken(h refdb.Held) bool { return h.Nonce == "" && h.Heartbeat.IsZero() }
