package main

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

type versionsJSON struct {
	DatabaseVersion *uint `json:"database_version"`
	ProgramVersion  *uint `json:"program_version"`
	Dirty           *bool
}

func TestMigrateUpAdoptsThePluginsTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	w.do(t, "migrate", "down", "--yes")
	w.do(t, "migrate", "up")
	if got := w.do(t, "refs", "get", "p", mainRef); got != id("a")+"\n" {
		t.Errorf("got %q", got)
	}
}
