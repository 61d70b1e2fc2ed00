package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// maxKeys is how many refs are locked by keys of their own. The server's
// table of locks has room for some thousands, shared by all of its clients:
// whoever needs more takes the whole project instead.
const maxKeys = 256

// A refName names a ref.
type refName struct{ project, ref string }

// A key stands for a project, or for one of its refs, among the server's
// advisory locks. All processes on a database have to compute the same one: it
// may never change.
type key int64

// keyOf returns the key of a ref or, given ref "", of the project itself.
func keyOf(project, ref string) key {
	name := make([]byte, 0, refdb.MaxNameBytes+1)
	name = append(name, project...)
	name = append(name, 0) // in no name
	name = append(name, ref...)
	sum := sha256.Sum256(name)
	return key(binary.BigEndian.Uint64(sum[:8]))
}

// Everybody takes the project's key first, and then those of the refs in their
// order, so that no circle of waiting can arise. It is a statement of its own
// because the next one's snapshot has to be taken after the wait.
const (
	lockRefsSQL = `
SELECT ` + guard + `, count(CASE n WHEN 1 THEN pg_advisory_xact_lock_shared(k) ELSE pg_advisory_xact_lock(k) END)
  FROM unnest($1::bigint[]) WITH ORDINALITY AS keys (k, n)`

	lockRefSQL     = `SELECT ` + guard + `, pg_advisory_xact_lock_shared($1), pg_advisory_xact_lock($2)`
	lockProjectSQL = `SELECT ` + guard + `, pg_advisory_xact_lock($1)`
)

// lockRefs adds the statement that keeps out all others who lock, update or
// remove one of the refs. It has to be the first.
func (t roundTrip) lockRefs(project string, refs []string) roundTrip {
	if len(refs) > maxKeys {
		return t.lockProject(project)
	}
	keys := make([]int64, 1, 1+len(refs))
	keys[0] = int64(keyOf(project, ""))
	for _, ref := range refs {
		keys = append(keys, int64(keyOf(project, ref)))
	}
	slices.Sort(keys[1:])
	return t.then(lockRefsSQL, nil, keys)
}

// lockRef is lockRefs for a single ref.
func (t roundTrip) lockRef(r refName) roundTrip {
	return t.then(lockRefSQL, nil, int64(keyOf(r.project, "")), int64(keyOf(r.project, r.ref)))
}

const lockKeysSQL = `
SELECT ` + guard + `, count(CASE WHEN shared THEN pg_advisory_xact_lock_shared(k) ELSE pg_advisory_xact_lock(k) END)
  FROM unnest($1::bigint[], $2::boolean[]) AS keys (k, shared)`

// lockNames is lockRefs for refs of any number of projects, in their order. All
// projects come first, in the order of their names, then the refs in that of their keys.
func (t roundTrip) lockNames(names []refName) roundTrip {
	var projects, refs []int64
	for _, n := range names {
		projects, refs = append(projects, int64(keyOf(n.project, ""))), append(refs, int64(keyOf(n.project, n.ref)))
	}
	projects = slices.Compact(projects)
	slices.Sort(refs)
	refs = slices.Compact(refs)
	if len(refs) > maxKeys {
		return t.then(lockKeysSQL, nil, projects, make([]bool, len(projects)))
	}
	shared := make([]bool, len(projects)+len(refs))
	for i := range projects {
		shared[i] = true
	}
	return t.then(lockKeysSQL, nil, slices.Concat(projects, refs), shared)
}

// lockProject adds the statement that keeps out all others from the project.
// It has to be the first.
func (t roundTrip) lockProject(project string) roundTrip {
	return t.then(lockProjectSQL, nil, int64(keyOf(project, "")))
}

// The keys that could be had without waiting are noted in a setting of the
// transaction, a character for each pair, because the statements after it are
// sent before its answer has come.
//
//	$1 keys of the projects  $2 of the refs
const tryRefsSQL = `
SELECT ` + guard + `, set_config('refdb.got', coalesce(string_agg(
         CASE WHEN pg_try_advisory_xact_lock_shared(p) AND pg_try_advisory_xact_lock(r) THEN chr(n + 64) END, ''), ''), true)
  FROM (SELECT unnest($1::bigint[]) AS p, unnest($2::bigint[]) AS r, generate_subscripts($1::bigint[], 1) AS n) AS keys`

// tryRefs adds the statement that keeps out all others from each of the refs
// whose keys nobody has. It has to be the first.
func (t roundTrip) tryRefs(refs []refName) roundTrip {
	ofProjects, ofRefs := make([]int64, len(refs)), make([]int64, len(refs))
	for i, r := range refs {
		ofProjects[i], ofRefs[i] = int64(keyOf(r.project, "")), int64(keyOf(r.project, r.ref))
	}
	return t.then(tryRefsSQL, nil, ofProjects, ofRefs)
}
