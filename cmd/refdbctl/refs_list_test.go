package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

type refJSON struct {
	Project, Ref, State string
	Value, Time         *string
}

type changeJSON struct {
	Project, Ref string
	Old, New     *string
}

func TestGetTellsUnknownDeletedAndPresentApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", "refs/heads/present", refdb.Value(id("a")))
	w.InsertRef(t, "p", "refs/heads/deleted", refdb.Deleted)
	w.InsertRef(t, "p", "refs/multi-site/version", "7\x1b[2J")
	for _, c := range []struct {
		ref, state, value, table, says string
		code                           int
	}{
		{"refs/heads/present", "present", id("a"), id("a") + "\n", "", exit.OK},
		{"refs/heads/deleted", "deleted", id("0"), "", "no such ref: p refs/heads/deleted was deleted", exit.Failed},
		{"refs/heads/unknown", "unknown", "", "", "no such ref: p refs/heads/unknown", exit.Failed},
		{"refs/multi-site/version", "present", "7\x1b[2J", `7\x1b[2J` + "\n", "", exit.OK},
	} {
		t.Run(c.state, func(t *testing.T) {
			r := w.run(t, "refs", "get", "p", c.ref)
			if r.is(t, c.code, c.says); r.out != c.table {
				t.Errorf("table: %q", r.out)
			}
			r = w.run(t, "refs", "get", "p", c.ref, "-o", "json")
			r.is(t, c.code, c.says)
			got := decode[refJSON](t, r.out)
			if got.Project != "p" || got.Ref != c.ref || got.State != c.state ||
				(got.Value == nil) != (c.value == "") || got.Value != nil && *got.Value != c.value {
				t.Errorf("JSON: %s", r.out)
			}
		})
	}
}

func TestListPrintsEveryRefOnceInEachFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	const n = 2500 // more than a page of the library's
	updates := make([]refdb.Update, n)
	for i := range updates {
		updates[i] = refdb.Update{Ref: fmt.Sprintf("refs/heads/b%04d", i), New: refdb.Value(id("a"))}
	}
	if err := db.Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
	w.InsertRef(t, "p", "refs/tags/o'brien\u202e", refdb.Value(id("b")))
	w.InsertRef(t, "p", "refs/tags/deleted", refdb.Deleted)
	w.InsertRef(t, "p/q", mainRef, refdb.Value(id("b")))

	if rows := decode[[]refJSON](t, w.do(t, "refs", "list", "p", "-o", "json")); len(rows) != n+1 || rows[7].Ref != updates[7].Ref {
		t.Errorf("JSON has %d rows", len(rows))
	}
	if rows, err := csv.NewReader(strings.NewReader(w.do(t, "refs", "list", "p", "-o", "csv"))).ReadAll(); err != nil || len(rows) != n+2 {
		t.Errorf("CSV has %d rows: %v", len(rows), err)
	}
	if lines := strings.Count(w.do(t, "refs", "list", "p"), "\n"); lines != n+2 {
		t.Errorf("the table has %d lines", lines)
	}
	tags := w.do(t, "refs", "list", "p", "--prefix=refs/tags/", "--deleted")
	if !strings.Contains(tags, `refs/tags/o'brien\u202e`) || !strings.Contains(tags, "refs/tags/deleted") || strings.Count(tags, "\n") != 3 {
		t.Errorf("tags:\n%s", tags)
	}
}

func TestPutAndDelete(t *testing.T) {
	t.Parallel()
	a, b, c, zero := id("a"), id("b"), id("c"), id("0")
	locked := "refs/heads/locked"
	w := newWorld(t)
	lock, err := w.open(t).TryLock(t.Context(), "p", locked)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release(t.Context())
	fence := strings.NewReplacer("TOKEN", fmt.Sprint(int64(lock.Token())), "OWNER", lock.Owner())
	for _, step := range []struct {
		name string
		args []string
		code int
		says string // in stderr
		out  string // after "p refs/heads/main: "
	}{
		{"create", []string{"put", mainRef, a, "--old=none"}, exit.OK, "", "none -> " + a},
		{"create what is there", []string{"put", mainRef, b, "--old=none"}, exit.Mismatch, a, ""},
		{"create by a zero ID what is there", []string{"put", mainRef, b, "--old", zero}, exit.Mismatch, a, ""},
		{"move from the wrong value", []string{"put", mainRef, b, "--old", c}, exit.Mismatch, a, ""},
		{"move, in upper case", []string{"put", mainRef, strings.ToUpper(b), "--old", strings.ToUpper(a)}, exit.OK, "", a + " -> " + b},
		{"force shows the old value", []string{"put", mainRef, c, "--force"}, exit.OK, "", b + " -> " + c},
		{"symbolic ref", []string{"put", mainRef, "ref: refs/heads/x", "--old", c}, exit.OK, "", c + " -> ref: refs/heads/x"},
		{"any string", []string{"put", mainRef, "17", "--string", "--old", "ref: refs/heads/x"}, exit.OK, "", "ref: refs/heads/x -> 17"},
		{"delete from the wrong value", []string{"delete", mainRef, "--old", a}, exit.Mismatch, "17", ""},
		{"delete", []string{"delete", mainRef, "--old", "17", "--string"}, exit.OK, "", "17 -> none"},
		{"delete again", []string{"delete", mainRef, "--old", "17", "--string"}, exit.Mismatch, "deleted", ""},
		{"force a delete", []string{"delete", mainRef, "--force"}, exit.OK, "", "none -> none"},
		{"re-create", []string{"put", mainRef, a, "--old", zero}, exit.OK, "", "none -> " + a},
		{"an old value for an unknown ref", []string{"put", "refs/heads/new", b, "--old", a}, exit.Mismatch, "nothing", ""},
		{"adopt an unknown ref", []string{"put", "refs/heads/new", b, "--old", a, "--adopt"}, exit.OK, "", a + " -> " + b},
		{"a locked ref", []string{"put", locked, a, "--old=none"}, exit.Locked, "locked: p " + locked + " by there/", ""},
		{"a locked ref by force", []string{"put", locked, a, "--force"}, exit.Locked, "locked", ""},
		{"a locked ref with a stale token", []string{"put", locked, a, "--old=none", "--token=5", "--owner=OWNER"}, exit.Lost, "lock lost", ""},
		{"a locked ref with its token and another owner", []string{"put", locked, a, "--old=none", "--token=TOKEN", "--owner=here/1"}, exit.Lost, "lock lost", ""},
		{"a locked ref with its token and owner", []string{"put", locked, a, "--old=none", "--token=TOKEN", "--owner=OWNER"}, exit.OK, "", "none -> " + a},
		{"delete a locked ref with its token and another owner", []string{"delete", locked, "--old", a, "--token=TOKEN", "--owner=here/1"}, exit.Lost, "lock lost", ""},
		{"delete a locked ref with its token and owner", []string{"delete", locked, "--old", a, "--token=TOKEN", "--owner=OWNER"}, exit.OK, "", a + " -> none"},
	} {
		t.Run(step.name, func(t *testing.T) {
			args := []string{"refs", step.args[0], "p"}
			for _, arg := range step.args[1:] {
				args = append(args, fence.Replace(arg))
			}
			r := w.run(t, args...)
			r.is(t, step.code, step.says)
			want := ""
			if step.code == exit.OK {
				want = "p " + step.args[1] + ": " + step.out + "\n"
			} else {
				r.isOneLine(t)
			}
			if r.out != want {
				t.Errorf("printed %q, want %q", r.out, want)
			}
		})
	}
}

func TestPutInJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := decode[changeJSON](t, w.do(t, "refs", "put", "p", mainRef, id("a"), "--old=none", "-o", "json"))
	if got.Project != "p" || got.Ref != mainRef || got.Old != nil || got.New == nil || *got.New != id("a") {
		t.Errorf("%+v", got)
	}
}

// lossy is a driver whose replies to updates get lost.
type lossy struct {
	refdb.Driver
	carryOut bool
}

func (l lossy) Update(ctx context.Context, r driver.UpdateRequest) error {
	if l.carryOut {
		if err := l.Driver.Update(ctx, r); err != nil {
			return err
		}
	}
	return fmt.Errorf("reply lost: %w", refdb.ErrOutcomeUnknown)
}

func TestALostReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wrap = func(d refdb.Driver) refdb.Driver { return lossy{d, false} }
	r := w.run(t, "refs", "put", "p", mainRef, id("a"), "--old=none")
	r.is(t, exit.Unknown, "outcome unknown")
	r.isOneLine(t)
	w.wrap = func(d refdb.Driver) refdb.Driver { return lossy{d, true} }
	w.do(t, "refs", "put", "p", mainRef, id("a"), "--old=none")
}

// hanging is a driver that does not answer.
type hanging struct{ refdb.Driver }

func (hanging) Get(ctx context.Context, _ string, _ []string) ([]refdb.Ref, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) List(ctx context.Context, _ driver.RefQuery) (driver.RefPage, error) {
	<-ctx.Done()
	return driver.RefPage{}, ctx.Err()
}

func TestADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wrap = func(d refdb.Driver) refdb.Driver { return hanging{d} }
	for _, args := range []string{"refs get p " + mainRef, "refs list p"} {
		r := w.run(t, append(strings.Fields(args), "--timeout=50ms")...)
		r.is(t, exit.Failed, "--timeout 50ms")
		r.isOneLine(t)
	}
}

func TestTombstonesArePurgedByAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", "refs/heads/old", refdb.Deleted)
	w.InsertRef(t, "p", "refs/heads/new", refdb.Deleted)
	w.InsertRef(t, "p", "refs/heads/alive", refdb.Value(id("a")))
	w.Exec(t, `UPDATE refs SET time = time - ? WHERE ref <> 'refs/heads/new'`, (48 * time.Hour).Microseconds())
	if got := w.do(t, "refs", "purge-tombstones", "p", "--older-than=1d", "--yes"); got != "removed 1 tombstone of p\n" {
		t.Errorf("got %q", got)
	}
	if rows := decode[[]refJSON](t, w.do(t, "refs", "list", "p", "--deleted", "-o", "json")); len(rows) != 2 {
		t.Errorf("left: %+v", rows)
	}
}

func TestProjectRemove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	for _, project := range []string{"a", "a/b"} {
		w.InsertRef(t, project, mainRef, refdb.Value(id("a")))
	}
	r := w.run(t, "project", "remove", "a", "--dry-run")
	if r.is(t, exit.OK, "project a has 1 ref, deleted ones included, and 0 locks"); r.out != "" {
		t.Errorf("printed %q", r.out)
	}
	if _, err := db.TryLock(t.Context(), "a", "refs/heads/x"); err != nil {
		t.Fatal(err)
	}
	refused := w.run(t, "project", "remove", "a", "--yes")
	refused.is(t, exit.Locked, "locked")
	refused.isOneLine(t)
	if got := w.do(t, "project", "remove", "a", "--yes", "--force"); got != "removed 1 ref of a\n" {
		t.Errorf("got %q", got)
	}
	w.do(t, "refs", "get", "a/b", mainRef)
	w.run(t, "project", "remove", "a", "--yes", "-o", "json").is(t, exit.Failed, "no such project")
}
