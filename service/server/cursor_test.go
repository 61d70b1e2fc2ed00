package server_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// A cursor names the last change that was shown, and no other one.
func TestCursorsNameOnlyWhatWasShown(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", "refs/heads/*")
	r.put(t, "p", secretRef, "1")
	s := r.serve(t, server.DefaultLimits, nil)
	w := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p"})
	named := func() string {
		t.Helper()
		text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(w.cursor, "refdb-"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	w.next(t)
	first := named()
	var updates []refdb.Update // of one transaction, and several pages
	for n := range 250 {
		updates = append(updates, refdb.Update{Ref: fmt.Sprintf("refs/heads/%03d", n), New: "1"}, refdb.Update{Ref: fmt.Sprintf("%s/%03d", secretRef, n), New: "1"})
	}
	updates = append(updates, refdb.Update{Ref: "refs/a", New: "1"}, refdb.Update{Ref: "refs/z", New: "1"})
	if err := r.db.Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
	last := w.until(t, "249=1")
	if n := len(strings.Fields(last)); n != 250 {
		t.Errorf("%d changes were shown", n)
	}
	for _, text := range []string{first, named()} {
		for _, secret := range []string{"secret", "refs/a", "refs/z"} {
			if strings.Contains(text, secret) {
				t.Errorf("the cursor names %s: %s", secret, text)
			}
		}
	}
	// Whoever makes up a cursor doesn't learn whether there is the change that it names.
	end, err := r.db.HistoryEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{secretRef, "refs/secret/no"} {
		end.Last.Ref, end.LastOp = ref, "x"
		forged := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p", Cursor: end.String()})
		r.put(t, "p", mainRef, refdb.Value(ref))
		if got := forged.until(t, "main="+ref); got != "main="+ref {
			t.Errorf("%s", got)
		}
		if end, err = r.db.HistoryEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCursorsThatNobodyWasGivenAreRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Read, "p", access.All)
		r.put(t, "p", mainRef, "1")
		s := r.serve(t, server.DefaultLimits, nil)
		end, err := r.db.HistoryEnd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func(c *refdb.Cursor){
			"a mark that is no name":   func(c *refdb.Cursor) { c.Mark.Project, c.Mark.Ref = "p", "refs/\x00" },
			"a change that is no name": func(c *refdb.Cursor) { c.Last.Ref = "refs/\x00" },
			"an earlier program's":     func(c *refdb.Cursor) { c.Durable = false },
		} {
			forged := end
			change(&forged)
			if code := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p", Cursor: forged.String()}).failure(); code != connect.CodeInvalidArgument {
				t.Errorf("%s: %s", what, code)
			}
		}
		for what, change := range map[string]func(c *refdb.Cursor){
			"a position that nothing has":  func(c *refdb.Cursor) { c.Mark.Position += 1 << 40 },
			"a position before the oldest": func(c *refdb.Cursor) { c.Mark.Position, c.Last.Position = -5, -5 },
			"another database's":           func(c *refdb.Cursor) { c.Epoch = "\x00" },
		} {
			forged := end
			change(&forged)
			if code := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p", Cursor: forged.String()}).failure(); code != connect.CodeOutOfRange {
				t.Errorf("%s: %s", what, code)
			}
		}
	})
}

// A database that went back without a recovery may reach the same positions again.
func TestACursorNamesTheNewestChangeThoughItWasNotShown(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", "refs/heads/*")
	r.put(t, "p", mainRef, "1")
	s := r.serve(t, server.DefaultLimits, nil)
	w := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p"})
	w.next(t)
	c, err := refdb.ParseCursor(w.cursor)
	if err != nil || c.Last.Ref != mainRef || c.LastOp == "" {
		t.Fatalf("%+v, %v", c, err)
	}
	c.LastOp = "of another state of the database"
	if code := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p", Cursor: c.String()}).failure(); code != connect.CodeOutOfRange {
		t.Errorf("%s", code)
	}
}

func TestACursorBeforeWhatWasPrunedIsAFailure(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Read, "p", access.All)
		s := r.serve(t, server.DefaultLimits, nil)
		w := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p"})
		w.next(t)
		w.end()
		r.put(t, "p", mainRef, "1")
		eventually(t, "the change is complete", func() bool {
			n, err := r.db.Operator().PruneHistory(t.Context(), operator.PruneOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
		if code := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p", Cursor: w.cursor}).failure(); code != connect.CodeOutOfRange {
			t.Errorf("%s", code)
		}
	})
}
