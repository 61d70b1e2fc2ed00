// Package race has the rows of the suite about two or more requests at once.
package race

import "github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"

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
	refA  = suite.RefA
	refB  = suite.RefB
	refC  = suite.RefC
	v1    = suite.V1
	v2    = suite.V2
	v3    = suite.V3
	stale = suite.Stale
)

// Topics returns the topics with their rows.
func Topics() []suite.Topic {
	return []suite.Topic{
		{Name: "Contenders", Rows: contenderRows()},
		{Name: "Races of locks", Rows: lockRows()},
		{Name: "Races of updates", Rows: updateRows()},
		{Name: "Races of intents", Rows: intentRows()},
		{Name: "Races of freezes", Rows: freezeRows()},
		{Name: "Races of names", Rows: nameRows()},
		{Name: "Races of packs", Rows: packRows()},
	}
}
