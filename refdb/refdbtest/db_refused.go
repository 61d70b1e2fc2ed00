package refdbtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbRefusedRows() []row {
	return []row{
		{"P10 an invalid project is refused before the database is asked", func(e *env) {
			long := strings.Repeat("x", refdb.MaxNameBytes-len(refA)+1)
			for _, name := range []string{"", "a\x00b", "\xff", "a\xc3", refdb.ReclaimPrefix, refdb.ReclaimPrefix + "a", marker("a", 1), long, strings.Repeat("x", 100_000)} {
				e.refusedByAll(name, refA)
			}
		}},
		{"P10 an invalid ref is refused before the database is asked", func(e *env) {
			for _, name := range invalidRefs() {
				e.refusedByAll(e.project, name)
			}
		}},
		{"P10 names that are as long as they may be are not refused", func(e *env) {
			db := e.open(refdb.Options{})
			ref := "refs/heads/" + random(refdb.MaxNameBytes-len("refs/heads/")-len(e.project))
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(ref, "", v1)}))
			l := e.hold(db, ref)
			if l.Value(ref) != v1 {
				e.Errorf("it holds %q", l.Value(ref))
			}
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(ref, v1, v2)}))
		}},
		{"an invalid value is refused before the database is asked", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			l := e.hold(db, refB)
			asked := tap.count("")
			for _, v := range []refdb.Value{"\xff", "a\x00", refdb.Value(strings.Repeat("x", refdb.MaxValueBytes+1)), "ref: ", "ref: main", "ref: refs/heads/a b"} {
				for name, err := range map[string]error{
					"Update to":        db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v)}),
					"Update from":      db.Update(e.Context(), e.project, []refdb.Update{move(refA, v, v1)}),
					"Lock.Update":      l.Update(e.Context(), []refdb.Update{move(refB, "", v)}),
					"UpdateAndRelease": l.UpdateAndRelease(e.Context(), []refdb.Update{move(refB, "", v)}),
					"CompareAndPut":    second(db.CompareAndPut(e.Context(), e.project, refA, "", v)),
					"IsUpToDate":       second(db.IsUpToDate(e.Context(), e.project, refA, v)),
				} {
					if err == nil {
						e.Errorf("%s %.20q was not refused", name, v)
						continue
					}
					e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
				}
			}
			if n := tap.count("") - asked; n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
			e.wantHeld(l)
		}},
		{"too many refs are refused before the database is asked", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			refs := make([]string, refdb.MaxUpdateRefs+1)
			updates := make([]refdb.Update, len(refs))
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/%d", i)
				updates[i] = move(refs[i], "", v1)
			}
			ended, cancel := context.WithCancel(e.Context())
			cancel() // a Lock that is not refused must not wait for those before it
			for name, err := range map[string]error{
				"Update":  db.Update(e.Context(), e.project, updates),
				"TryLock": second(db.TryLock(e.Context(), e.project, refs[:refdb.MaxLockRefs+1]...)),
				"Lock":    second(db.Lock(ended, e.project, refs[:refdb.MaxLockRefs+1]...)),
				"GetAll":  second(db.GetAll(e.Context(), e.project, refs...)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.wantClass(err, refdb.ErrTooMany, refdb.Permanent)
			}
			if n := tap.count(""); n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
		}},
		{"a request about no ref, or about one twice, is refused before the database is asked", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			for name, err := range map[string]error{
				"Update of none":        db.Update(e.Context(), e.project, nil),
				"Update of one as two":  db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1), move(refA, "", v2)}),
				"TryLock of none":       second(db.TryLock(e.Context(), e.project)),
				"TryLock of one as two": second(db.TryLock(e.Context(), e.project, refA, refB, refA)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
			}
			if n := tap.count(""); n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
		}},
		{"options that can't work are refused, and the driver left to the caller", func(e *env) {
			for _, o := range []refdb.Options{
				{Site: "a/b"}, {Site: "\xff"}, {Site: "a\x00"}, {Site: strings.Repeat("x", 10_000)},
				{StaleAfter: time.Nanosecond}, {StaleAfter: -time.Second},
				{Heartbeat: -time.Second}, {Heartbeat: 11 * time.Second, StaleAfter: 30 * time.Second}, {Heartbeat: time.Minute},
				{MaxWait: -1},
			} {
				if _, err := refdb.New(e.a.Driver, o); err == nil {
					e.Errorf("%+v was not refused", o)
				} else {
					e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
				}
			}
			e.must(e.update(e.a, move(refA, "", v1)))
		}},
	}
}

func second[T any](_ T, err error) error { return err }

// refusedByAll has every operation refuse a key, without asking the database.
func (e *env) refusedByAll(project, ref string) {
	e.Helper()
	db, tap := e.openTapped(refdb.Options{})
	ctx := e.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel() // a Lock that is not refused must not wait for those before it
	type op struct {
		name string
		err  error
	}
	updates := []refdb.Update{move(refA, "", v1), move(ref, "", v1)}
	ops := []op{
		{"Get", second(db.Get(ctx, project, ref))},
		{"GetAll", second(db.GetAll(ctx, project, "HEAD", ref))},
		{"Exists", second(db.Exists(ctx, project, ref))},
		{"IsUpToDate", second(db.IsUpToDate(ctx, project, ref, v1))},
		{"Update", db.Update(ctx, project, updates[1:])},
		{"Update of several", db.Update(ctx, project, append(updates, move("HEAD", "", v1)))},
		{"Update under a lock", db.Update(ctx, project, []refdb.Update{move("HEAD", "", v1)}, refdb.Under("site/1", 1, ref))},
		{"CompareAndPut", second(db.CompareAndPut(ctx, project, ref, "", v1))},
		{"Put", second(db.Put(ctx, project, ref, v1))},
		{"TryLock", second(db.TryLock(ctx, project, "HEAD", ref))},
		{"Prepare", second(db.Prepare(ctx, project, updates, agent))},
		{"Finish", db.Finish(ctx, refdb.Preparation{Project: project, Token: 1, Updates: updates}, []string{ref}, nil)},
		{"States", second(db.States(ctx, project, []string{"HEAD", ref}))},
		{"Lock", second(db.Lock(ended, project, "HEAD", ref))},
	}
	if refdb.CheckProject(project) != nil {
		ops = append(ops,
			op{"Refs", firstError(db.Refs(ctx, project, ""))},
			op{"RemoveProject", second(db.RemoveProject(ctx, project, refdb.Force()))},
			op{"PurgeTombstones", second(db.PurgeTombstones(ctx, project, time.Hour))},
		)
	}
	// A filter's empty name is none, and the limit on both together is not its business.
	if project != "" && ref != "" && (refdb.CheckProject(project) != nil || refdb.CheckRef(ref) != nil) {
		ops = append(ops,
			op{"Locks", firstError(db.Locks(ctx, refdb.LockFilter{Project: project, Ref: ref}))},
			op{"Intents", firstError(db.Intents(ctx, refdb.IntentFilter{Project: project, Ref: ref}))},
		)
	}
	for _, op := range ops {
		if op.err == nil {
			e.Errorf("%s of %.40q %.40q was not refused", op.name, project, ref)
			continue
		}
		e.wantClass(op.err, refdb.ErrInvalid, refdb.Permanent)
	}
	if n := tap.count(""); n != 0 {
		e.Errorf("%.40q %.40q: the database was asked %d times", project, ref, n)
	}
}

func firstError[T any](all func(func(T, error) bool)) error {
	for _, err := range all {
		return err
	}
	return nil
}

func invalidRefs() []string {
	names := []string{
		"", "main", "head", "Head", "heads", "refs", "HEAD2", "/", "/refs/heads/a", "refs/heads/", "refs//heads/a",
		"refs/heads/.a", "refs/heads/a.lock", "refs/heads.lock/a", "refs/heads/a.", "refs/heads/a..b", "refs/heads/a@{b", "@",
		"refs/heads/a\xff", "refs/heads/\xc3", "refs/heads/\xed\xa0\x80", // a lone surrogate
		"refs/heads/" + strings.Repeat("x", refdb.MaxNameBytes),
	}
	for _, c := range []byte(" ~^:?*[\\\x00\x01\t\n\r\x1f\x7f") {
		names = append(names, "refs/heads/a"+string(c)+"b", "refs/heads/"+string(c), "H"+string(c))
	}
	return slices.Compact(names)
}
