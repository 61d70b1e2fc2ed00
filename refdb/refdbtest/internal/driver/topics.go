// Package driver has the rows of the suite about a driver's methods.
package driver

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// What the rows share, by short names.
type (
	row         = suite.Row
	env         = suite.Env
	process     = suite.Process
	lock        = suite.Lock
	preparation = suite.Preparation
	pack        = suite.Pack
)

const (
	refA       = suite.RefA
	refB       = suite.RefB
	refC       = suite.RefC
	v1         = suite.V1
	v2         = suite.V2
	v3         = suite.V3
	gerrit     = suite.Gerrit
	agent      = suite.Agent
	asker      = suite.Asker
	staleAfter = suite.StaleAfter
	stale      = suite.Stale
	years      = suite.Years
)

// Topics returns the topics with their rows.
func Topics() []suite.Topic {
	return []suite.Topic{
		{Name: "Names", Rows: nameRows()},
		{Name: "Size", Rows: sizeRows()},
		{Name: "Get", Rows: getRows()},
		{Name: "List", Rows: listRows()},
		{Name: "Summaries", Rows: summaryRows()},
		{Name: "Update", Rows: updateRows()},
		{Name: "Mandatory locks", Rows: mandatoryRows()},
		{Name: "Fence", Rows: fenceRows()},
		{Name: "Remove", Rows: removeRows()},
		{Name: "Acquire", Rows: acquireRows()},
		{Name: "Nonce", Rows: nonceRows()},
		{Name: "Reclaim", Rows: reclaimRows()},
		{Name: "Beat", Rows: beatRows()},
		{Name: "Release", Rows: releaseRows()},
		{Name: "Purge", Rows: purgeRows()},
		{Name: "Abandon", Rows: abandonRows()},
		{Name: "Locks", Rows: locksRows()},
		{Name: "Intents", Rows: slices.Concat(intentRows(), intentEndRows())},
		{Name: "Excluded names", Rows: excludedNameRows()},
		{Name: "Cursors", Rows: cursorRows()},
		{Name: "Resolve", Rows: resolveRows()},
		{Name: "States", Rows: stateRows()},
		{Name: "Projects", Rows: projectRows()},
		{Name: "Freeze", Rows: freezeRows()},
		{Name: "Audit", Rows: auditRows()},
		{Name: "History", Rows: historyRows()},
		{Name: "Changes", Rows: changesRows()},
		{Name: "Tip", Rows: tipRows()},
		{Name: "Past", Rows: pastRows()},
		{Name: "Prune", Rows: pruneRows()},
		{Name: "Packs", Rows: slices.Concat(packRows(), packListRows(), packUseRows(), packCarriedRows(), packDropRows())},
		{Name: "Admission", Rows: slices.Concat(admissionRows(), reportRows(), testimonyRows(), recoverRows())},
		{Name: "Connection", Rows: connectionRows()},
		{Name: "Queues", Rows: slices.Concat(queueRows(), severalRefsRows(), keptRows())},
		{Name: "Notifier", Rows: notifierRows()},
	}
}
