// Package db has the rows of the suite about a refdb.DB on the driver.
package db

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
	refA   = suite.RefA
	refB   = suite.RefB
	refC   = suite.RefC
	v1     = suite.V1
	v2     = suite.V2
	v3     = suite.V3
	gerrit = suite.Gerrit
	agent  = suite.Agent
	asker  = suite.Asker
	stale  = suite.Stale
	years  = suite.Years
)

// Topics returns the topics with their rows, those that take longest first. On a slow database
// -short has locks, refs, intents and lost replies: what a DB does elsewhere rests on the driver's
// own rows, and is the same on a faster one.
func Topics() []suite.Topic {
	return []suite.Topic{
		{Name: "DB loss", Rows: suite.AllLong(lossRows())},
		{Name: "DB waiting", Rows: suite.AllLong(waitRows())},
		{Name: "DB cost", Rows: suite.AllLong(costRows())},
		{Name: "DB refs", Rows: refRows()},
		{Name: "DB locks", Rows: lockRows()},
		{Name: "DB replies", Rows: replyRows()},
		{Name: "DB intents", Rows: slices.Concat(intentRows(), intentReplyRows())},
		{Name: "DB refusals", Rows: suite.AllLong(refusedRows())},
		{Name: "DB administration", Rows: suite.AllLong(adminRows())},
		{Name: "DB pages", Rows: suite.AllLong(pageRows())},
		{Name: "DB history", Rows: suite.AllLong(historyRows())},
		{Name: "DB state keys", Rows: suite.AllLong(stateKeyRows())},
		{Name: "DB pruning", Rows: suite.AllLong(pruneRows())},
		{Name: "DB packs", Rows: suite.AllLong(packRows())},
		{Name: "DB admission", Rows: suite.AllLong(admissionRows())},
	}
}
