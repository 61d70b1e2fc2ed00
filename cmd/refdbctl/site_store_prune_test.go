package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
)

type prunedJSON struct{ Unused, Superseded int }

// Nothing is deleted that a push may use yet, or that a site may have to unpack.
func TestOnlyUnneededPacksArePruned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.openAs(t, "eu")
	row, err := db.Projects().Put(t.Context(), driver.Project{Project: "p", ID: "id", Rules: "none", Mode: "enforce", Store: "all"})
	if err != nil {
		t.Fatal(err)
	}
	tips, sum := []string{strings.Repeat("1", 40)}, sha256.Sum256([]byte("data"))
	store := func(id string, base bool, at refdb.Position) {
		t.Helper()
		p := driver.Pack{ID: id, Project: row.Project, Owner: db.Owner(), Tips: tips, Full: base, Position: at, Size: 4, Sum: hex.EncodeToString(sum[:])}
		if err := db.Packs().Store(t.Context(), driver.PackPart{Pack: p, Data: []byte("data"), Last: true}); err != nil {
			t.Fatal(err)
		}
	}
	use := func(id, ref string) {
		t.Helper()
		moves := []refdb.Update{{Ref: ref, New: refdb.Value(tips[0])}}
		p, err := db.Intents().Prepare(t.Context(), row.Project, moves, "test", intents.WithPacks(id))
		if err == nil {
			err = db.Intents().Finish(t.Context(), p, []string{ref}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	prune := func(args ...string) prunedJSON {
		t.Helper()
		return decode[prunedJSON](t, w.do(t, append([]string{"site", "store", "prune", "-o", "json"}, args...)...))
	}
	held := func(want ...string) {
		t.Helper()
		if usage, err := db.Packs().Usage(t.Context(), row.Project); err != nil || usage.Packs != len(want) {
			t.Errorf("the database keeps %+v, %v; want %v", usage, err, want)
		}
	}

	store("1", false, 0)
	use("1", "refs/heads/a")
	store("2", false, 0)
	store("unused", false, 0)
	if got := prune(); got != (prunedJSON{}) {
		t.Errorf("while all are needed: %+v", got)
	}
	use("2", "refs/heads/b") // it may be used for an hour
	held("1", "2")

	state, err := db.HistoryState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store("~2-base", true, state.Upto)
	if got := prune("--older-than", "1ms"); got != (prunedJSON{Unused: 1, Superseded: 2}) {
		t.Errorf("once one is abandoned and a base replaces two: %+v", got)
	}
	held("~2-base")
	if out := w.do(t, "site", "store", "prune", "--older-than", "5m"); out != "pruned 0 packs that were not used, and 0 that a base replaces\n" {
		t.Errorf("it says %q", out)
	}
	w.run(t, "site", "store", "prune", "--older-than", "0").is(t, exit.Misuse, "older-than")
}
