package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// maxKeys is the maximum number of refs that are locked by keys of their own. The server's lock
// table has room for some thousands of locks, shared by all clients, so a request for more refs
// locks the whole project instead.
const maxKeys = 256

// A refName names a ref.
type refName struct{ project, ref string }

// A key identifies a project or one of its refs among the server's advisory locks. All processes on
// a database have to compute the same key, so the computation must never change.
type key int64

// keyOf returns the key of a ref or, given ref "", of the project itself.
func keyOf(project, ref string) key {
	name := make([]byte, 0, driver.MaxNameBytes+1)
	name = append(name, project...)
	name = append(name, 0) // occurs in no name
	name = append(name, ref...)
	sum := sha256.Sum256(name)
	return key(binary.BigEndian.Uint64(sum[:8]))
}

// Every transaction takes the project's key first, and then the refs' keys in ascending order, so
// no deadlock can arise. This is a separate statement because the snapshot of the next one has to
// be taken after the wait.
const (
	lockRefsSQL = `
pg_catalog.count(CASE WHEN n OPERATOR(pg_catalog.=) 1 THEN pg_catalog.pg_advisory_xact_lock_shared(k) ELSE pg_catalog.pg_advisory_xact_lock(k) END)
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[])) WITH ORDINALITY AS keys (k, n)`

	lockRefSQL     = `pg_catalog.pg_advisory_xact_lock_shared($1), pg_catalog.pg_advisory_xact_lock($2)`
	lockProjectSQL = `pg_catalog.pg_advisory_xact_lock($1)`
)

// lockRefs excludes all other transactions that lock, update or remove one of the refs. It has to
// be the first statement.
func lockRefs(project string, refs []string) roundtrip.Statement {
	if len(refs) > maxKeys {
		return lockProject(project)
	}
	keys := make([]int64, 1, 1+len(refs))
	keys[0] = int64(keyOf(project, ""))
	for _, ref := range refs {
		keys = append(keys, int64(keyOf(project, ref)))
	}
	slices.Sort(keys[1:])
	return roundtrip.Guarded(lockRefsSQL, keys)
}

// lockRef is lockRefs for a single ref.
func lockRef(r refName) roundtrip.Statement {
	return roundtrip.Guarded(lockRefSQL, int64(keyOf(r.project, "")), int64(keyOf(r.project, r.ref)))
}

const lockKeysSQL = `
pg_catalog.count(CASE WHEN shared THEN pg_catalog.pg_advisory_xact_lock_shared(k) ELSE pg_catalog.pg_advisory_xact_lock(k) END)
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[]), pg_catalog.unnest($2::pg_catalog.bool[])) AS keys (k, shared)`

// lockNames is lockRefs for sorted names of any number of projects. The keys of all projects come
// first, in the order of their names, then the keys of the refs in ascending order.
func lockNames(names []refName) roundtrip.Statement {
	var projects, refs []int64
	for _, n := range names {
		projects, refs = append(projects, int64(keyOf(n.project, ""))), append(refs, int64(keyOf(n.project, n.ref)))
	}
	projects = slices.Compact(projects)
	slices.Sort(refs)
	refs = slices.Compact(refs)
	if len(refs) > maxKeys {
		return roundtrip.Guarded(lockKeysSQL, projects, make([]bool, len(projects)))
	}
	shared := make([]bool, len(projects)+len(refs))
	for i := range projects {
		shared[i] = true
	}
	return roundtrip.Guarded(lockKeysSQL, slices.Concat(projects, refs), shared)
}

// lockProject excludes all other transactions on the project. It has to be the first statement.
func lockProject(project string) roundtrip.Statement {
	return roundtrip.Guarded(lockProjectSQL, int64(keyOf(project, "")))
}

// tryRefsSQL records in a setting of the transaction which keys it took without waiting, with a
// character for each pair of keys, because the following statements are sent before its answer has
// arrived.
//
//	$1 keys of the projects  $2 of the refs
const tryRefsSQL = `
pg_catalog.set_config('refdb.got', coalesce(pg_catalog.string_agg(
         CASE WHEN pg_catalog.pg_try_advisory_xact_lock_shared(p) AND pg_catalog.pg_try_advisory_xact_lock(r) THEN pg_catalog.chr(n OPERATOR(pg_catalog.+) 64) END, ''), ''), true)
  FROM (SELECT pg_catalog.unnest($1::pg_catalog.int8[]) AS p, pg_catalog.unnest($2::pg_catalog.int8[]) AS r,
          pg_catalog.generate_subscripts($1::pg_catalog.int8[], 1) AS n) AS keys`

// tryRefs excludes other transactions from each ref whose keys are free. It has to be the first
// statement.
func tryRefs(refs []refName) roundtrip.Statement {
	ofProjects, ofRefs := make([]int64, len(refs)), make([]int64, len(refs))
	for i, r := range refs {
		ofProjects[i], ofRefs[i] = int64(keyOf(r.project, "")), int64(keyOf(r.project, r.ref))
	}
	return roundtrip.Guarded(tryRefsSQL, ofProjects, ofRefs)
}
