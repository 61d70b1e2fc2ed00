package refdb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
	"github.com/globalrefdb/globalrefdb/refdb/recovery"
)

// A schemaFake gives the answers of CheckSchema that a test sets.
type schemaFake struct {
	*fake
	err atomic.Pointer[error]
}

func (f *schemaFake) setSchema(err error) { f.err.Store(&err) }

func (f *schemaFake) CheckSchema(context.Context) error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *schemaFake) Remove(context.Context, driver.RemoveRequest) (int, error) { return 0, nil }

func (f *schemaFake) PutProject(context.Context, driver.ProjectRequest) (driver.Project, error) {
	return driver.Project{}, nil
}

func (f *schemaFake) Look(context.Context, string, []driver.Known) (driver.Looked, error) {
	return driver.Looked{}, nil
}

func (f *schemaFake) Report(context.Context, driver.Report) (driver.Admission, error) {
	return driver.Admission{}, nil
}

func (f *schemaFake) Recover(context.Context, driver.RecoverRequest) (driver.Recovered, error) {
	return driver.Recovered{Done: true}, nil
}

func TestNothingIsBegunOnASchemaThatDoesNotFitAnyMore(t *testing.T) {
	f := &fake{}
	d := &schemaFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		lock := mustLock(t, db, "refs/heads/held")
		intent, err := db.Intents().Prepare(t.Context(), "p", []Update{{Ref: "refs/heads/pushed", New: "a"}}, "agent")
		if err != nil {
			t.Fatal(err)
		}
		begin := map[string]func() error{
			"lock":   func() error { _, err := db.TryLock(t.Context(), "p", testRef); return err },
			"update": func() error { return db.Update(t.Context(), "p", []Update{{Ref: testRef, New: "a"}}) },
			"prepare": func() error {
				_, err := db.Intents().Prepare(t.Context(), "p", []Update{{Ref: testRef, New: "a"}}, "agent")
				return err
			},
			"finish": func() error { return db.Intents().Finish(t.Context(), intent, []string{"refs/heads/pushed"}, nil) },
			"remove": func() error { _, err := db.Projects().Remove(t.Context(), "p"); return err },
			"resolve": func() error {
				_, err := db.Intents().Resolve(t.Context(), []driver.Intent{{Project: "p", Ref: testRef, Owner: "o", Token: 1}}, driver.KeepOld, "me", "why")
				return err
			},
			"project": func() error {
				_, err := db.Projects().Put(t.Context(), driver.Project{Project: "p", ID: "id", Rules: "ref refs/heads/*", Mode: "enforce"})
				return err
			},
			"compare": func() error { _, err := db.Recovery().Compare(t.Context()); return err },
			"recover": func() error {
				_, err := db.Recovery().Recover(t.Context(), recovery.Options{By: "me", Reason: "why"})
				return err
			},
		}
		check := func(says string, unfit bool) {
			t.Helper()
			time.Sleep(engine.SchemaPoll + time.Second)
			synctest.Wait()
			for name, do := range begin {
				if err := do(); errors.Is(err, ErrSchema) != unfit {
					t.Errorf("%s: %s: %v", says, name, err)
				}
			}
		}
		check("it fits", false)
		d.setSchema(fmt.Errorf("asking: %w", ErrUnavailable))
		check("it can't be told", false)
		d.setSchema(fmt.Errorf("%w: upgrade the program", ErrSchema))
		check("it does not fit", true)
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("a lock that was held before can't be released: %v", err)
		}
		d.setSchema(fmt.Errorf("asking: %w", ErrUnavailable))
		check("it can't be told, but did not fit", true)
		d.setSchema(nil)
		check("it fits again", false)
	})
}
