package postgres

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// around is a part of a statement that creates refs: the rows that decide about the names. These
// are the refs above the created ones and, of the refs below each, the first with a value and the
// first whose lock stands for an intent. Refs that the statement itself moves, which are $2, are
// left out. It needs no newer snapshot than the rest: the creator of one of these refs holds the
// key of the name above, which this transaction has locked (see lockCreations). All rows are read
// in one snapshot, because the end of an intent takes only the key of its own ref.
//
// created and above are the numbers of the arguments with the results of rules.Created and
// rules.Above.
func around(created, above int) string {
	const notMoved = ` AND NOT ref = ANY ($2::text[])`
	below := `ref > made.ref || '/' AND ref < made.ref || '0'` + notMoved // 0 comes after the slash
	return fmt.Sprintf(`around AS MATERIALIZED (
  SELECT asked.ref, coalesce(value NOT IN `+absent+`, false) AS holds, CASE WHEN `+isIntent+` THEN owner END AS owner, token, heartbeat, stale_after
  FROM unnest($%[2]d::text[]) AS asked (ref)
  LEFT JOIN LATERAL (`+lockOfAsked+`) AS lock ON true
  LEFT JOIN LATERAL (`+refOfAsked+`) AS refs ON true
  WHERE (value NOT IN `+absent+` OR `+isIntent+`) AND NOT asked.ref = ANY ($2::text[])
  UNION ALL
  SELECT held.ref, true, NULL, NULL, NULL, NULL FROM unnest($%[1]d::text[]) AS made (ref), LATERAL (
    SELECT ref FROM refs WHERE project = $1 AND `+below+` AND value NOT IN `+absent+` ORDER BY ref LIMIT 1
  ) AS held
  UNION ALL
  SELECT lock.* FROM unnest($%[1]d::text[]) AS made (ref), LATERAL (
    SELECT ref, false, owner, token, heartbeat, stale_after FROM locks WHERE project = $1 AND `+below+` AND `+isIntent+` ORDER BY ref LIMIT 1
  ) AS lock
)`, created, above)
}

// conflicts returns the error of a request whose created refs are excluded by the refs in with.
func conflicts(project string, created, with []string) error {
	rows := make([]rules.Row, len(with))
	for i, ref := range with {
		// The value may be any that is not absent.
		rows[i] = rules.Row{Name: ref, Ref: &driver.Ref{Name: ref, Value: driver.Value(ref)}}
	}
	_, e := rules.CheckNames(project, created, rows)
	return e
}

// lockCreations is lockRefs for a request that creates refs; above are the names above the created
// refs. It locks the keys of above shared: a request that creates one of these names locks its key
// exclusively, and so comes before or after this one.
func lockCreations(project string, refs, above []string) roundtrip.Statement {
	if len(above) == 0 {
		return lockRefs(project, refs)
	}
	if len(refs)+len(above) > maxKeys {
		return lockProject(project)
	}
	keys, shared := orderedKeys(keysOf(project, refs), keysOf(project, above))
	return roundtrip.Guarded(lockKeysSQL, slices.Insert(keys, 0, int64(keyOf(project, ""))), slices.Insert(shared, 0, true))
}

func keysOf(project string, refs []string) []int64 {
	keys := make([]int64, len(refs))
	for i, ref := range refs {
		keys[i] = int64(keyOf(project, ref))
	}
	return keys
}

// orderedKeys returns the distinct keys in ascending order, and whether each is locked shared. A
// key in both lists is locked exclusively from the start: a ref may be above another ref of the
// same request, and two names may have the same key. Two requests that hold a key shared and then
// request it exclusively would deadlock.
func orderedKeys(exclusive, shared []int64) (keys []int64, isShared []bool) {
	slices.Sort(exclusive)
	keys = slices.Concat(exclusive, shared)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	isShared = make([]bool, len(keys))
	for i, k := range keys {
		_, alone := slices.BinarySearch(exclusive, k)
		isShared[i] = !alone
	}
	return keys, isShared
}
