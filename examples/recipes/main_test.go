// Package recipes has the programs that docs/RECIPES.md shows, and their tests.
package recipes

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

// A world is a database and machines that share it.
type world struct {
	*testing.T
	database *memory.Database
}

func newWorld(t *testing.T) *world { return &world{t, memory.New()} }

func (w *world) machine() *refdb.DB {
	w.Helper()
	db, err := refdb.New(w.database.Open(), refdb.Options{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { db.Close() })
	return db
}

// purgeAll takes all locks away from their holders.
func (w *world) purgeAll() {
	w.Helper()
	db := w.machine()
	for l, err := range db.Locks(w.Context(), refdb.LockFilter{}) {
		if err != nil {
			w.Fatal(err)
		}
		if _, err := db.Operator().Purge(w.Context(), []refdb.LockInfo{l}, operator.PurgeFresh()); err != nil {
			w.Fatal(err)
		}
	}
}
