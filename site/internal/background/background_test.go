package background_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/background"
)

func TestATaskHasAStateAndItsLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks background.Tasks
		ctx, cancel := context.WithCancel(t.Context())
		attempts := make(chan error)
		began := time.Now()
		go tasks.Run(ctx, background.Task{Name: "first", Run: func(ctx context.Context, failed func(error)) {
			for {
				select {
				case err := <-attempts:
					failed(err)
				case <-ctx.Done():
					time.Sleep(time.Second)
					failed(ctx.Err())
					return
				}
			}
		}})
		is := func(want background.State) {
			t.Helper()
			synctest.Wait()
			if got := tasks.States(); len(got) == 0 || got[0] != want {
				t.Errorf("states %+v, want %+v", got, want)
			}
		}
		is(background.State{Name: "first", Running: true, Since: began})
		time.Sleep(time.Hour)
		down := errors.New("down")
		attempts <- down
		is(background.State{Name: "first", Running: true, Since: began, Err: down})
		attempts <- nil
		is(background.State{Name: "first", Running: true, Since: began})
		attempts <- down
		synctest.Wait()
		cancel()
		is(background.State{Name: "first", Running: true, Since: began, Err: down}) // it is ending
		time.Sleep(time.Second)
		// That its context has ended is no error of the task.
		is(background.State{Name: "first", Since: began.Add(time.Hour + time.Second), Err: down})
		tasks.Run(t.Context(), background.Task{Name: "second", Run: func(context.Context, func(error)) {}})
		var names []string
		for _, s := range tasks.States() {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, []string{"first", "second"}) {
			t.Errorf("tasks %q", names)
		}
	})
}
