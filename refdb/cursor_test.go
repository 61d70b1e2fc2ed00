package refdb_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// older returns c as a program of version 10 of the schema would have printed it, so many positions
// further on: its mark was the last position that had ended, which a crash may have given to other
// changes since.
func older(t *testing.T, c refdb.Cursor, ahead refdb.Position, change func(fields map[string]any)) refdb.Cursor {
	t.Helper()
	const prefix = "refdb-"
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(c.String(), prefix))
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(decoded, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "Durable")
	fields["Mark"] = driver.ChangeKey{Position: c.Position() + 1 + ahead}
	if change != nil {
		change(fields)
	}
	encoded, err := json.Marshal(fields)
	if err == nil {
		c, err = refdb.ParseCursor(prefix + base64.RawURLEncoding.EncodeToString(encoded))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readAll returns the changes up to the end of the history, and the cursor there.
func readAll(t *testing.T, db *refdb.DB, q refdb.ChangeQuery) (refs string, c refdb.Cursor, err error) {
	t.Helper()
	for page, err := range db.Changes(t.Context(), q) {
		if err != nil {
			return refs, c, err
		}
		for _, change := range page.Changes {
			refs += strings.TrimPrefix(change.Ref, "refs/heads/")
		}
		if len(page.Changes) == 0 {
			return refs, page.Cursor, nil
		}
	}
	panic("not reached")
}

func TestACursorOfAnOlderProgramGoesOnAfterTheLastChangeThatItRead(t *testing.T) {
	t.Parallel()
	const ahead = 5
	prune := func(t *testing.T, db *refdb.DB, d *observed) {
		t.Helper()
		s, err := db.HistoryState(t.Context())
		if err == nil {
			_, err = d.Prune(t.Context(), driver.PruneRequest{Upto: s.Upto, EvenUnread: math.MinInt64, Limit: 100})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	epochAt := func(at refdb.Position) func(*testing.T, *refdb.DB, *observed) {
		return func(_ *testing.T, _ *refdb.DB, d *observed) {
			d.set(func(_ driver.ChangesRequest, page *driver.ChangesPage) error {
				page.State.Epochs = append(slices.Clone(page.State.Epochs), driver.Epoch{ID: "later", First: at})
				return nil
			})
		}
	}
	for _, row := range []struct {
		name   string
		refs   string // of p, which it has read
		change func(fields map[string]any)
		then   func(*testing.T, *refdb.DB, *observed)
		after  string // refs that are created after that
		want   string
		err    error
	}{
		{name: "nothing was changed since", refs: "ab"},
		{name: "changes have come up to its mark", refs: "ab", after: "cde", want: "cde"},
		{name: "changes have come beyond its mark", refs: "ab", after: "cdefghi", want: "cdefghi"},
		{name: "it has read no change", after: "ab", want: "ab"},
		{name: "what it read was pruned", refs: "ab", then: prune},
		{name: "what it read was pruned, and changes have come", refs: "ab", then: prune, after: "cd", want: "cd"},
		{name: "what it has not read was pruned", refs: "ab", then: func(t *testing.T, db *refdb.DB, d *observed) {
			for _, ref := range "cdefgh" {
				create(t, db, "refs/heads/"+string(ref))
			}
			prune(t, db, d)
		}, err: refdb.ErrPruned},
		{name: "the last change that it read is gone", refs: "ab", change: func(fields map[string]any) { fields["Op"] = "another" }, err: refdb.ErrRewound},
		{name: "it is of another database", refs: "ab", change: func(fields map[string]any) { fields["Epoch"] = "another" }, err: refdb.ErrRewound},
		{name: "an epoch has begun between its last change and its mark", refs: "ab", then: epochAt(4), after: "cd", want: "cd"},
		{name: "an epoch has begun before its last change", refs: "ab", then: epochAt(1), after: "cd", err: refdb.ErrRewound},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db, d := observedInMemory(t)
			for _, ref := range row.refs {
				create(t, db, "refs/heads/"+string(ref))
			}
			_, c, err := readAll(t, db, refdb.ChangeQuery{})
			if err != nil {
				t.Fatal(err)
			}
			c = older(t, c, ahead, row.change)
			if row.then != nil {
				row.then(t, db, d)
			}
			for _, ref := range row.after {
				create(t, db, "refs/heads/"+string(ref))
			}
			got, next, err := readAll(t, db, refdb.ChangeQuery{After: c})
			if got != row.want || !errors.Is(err, row.err) {
				t.Fatalf("it got %q, %v, want %q, %v", got, err, row.want, row.err)
			}
			if row.err != nil {
				return
			}
			// From then on the cursor is one of this program.
			asked := d.during(func() {
				if got, _, err := readAll(t, db, refdb.ChangeQuery{After: next}); got != "" || err != nil {
					t.Errorf("after that it got %q, %v", got, err)
				}
			})
			if from := asked[0].After.Position; from != next.Position()+1 {
				t.Errorf("it went on at %d, and its cursor stands at %d", from, next.Position())
			}
		})
	}
}

// An older program takes no notice of what it does not know in a cursor.
func TestACursorSaysThatItsPositionIsDurable(t *testing.T) {
	t.Parallel()
	db, _ := observedInMemory(t)
	create(t, db, "refs/heads/a")
	for name, c := range map[string]refdb.Cursor{"after reading": cursorOf(readAll(t, db, refdb.ChangeQuery{})), "of the end": endOf(t, db)} {
		decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(c.String(), "refdb-"))
		var fields struct {
			Durable bool
			Version int
		}
		if err == nil {
			err = json.Unmarshal(decoded, &fields)
		}
		if err != nil || !fields.Durable || fields.Version != 1 {
			t.Errorf("the cursor %s: %s, %v", name, decoded, err)
		}
	}
}

func cursorOf(_ string, c refdb.Cursor, _ error) refdb.Cursor { return c }

func endOf(t *testing.T, db *refdb.DB) refdb.Cursor {
	t.Helper()
	c, err := db.HistoryEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}
