package cli

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"
)

// waits yields a number after each wait, and fails when ctx has ended.
func waits(each time.Duration) func(context.Context) iter.Seq2[int, error] {
	return func(ctx context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range 3 {
				if err := Sleep(ctx, each); err != nil {
					yield(0, err)
					return
				}
				if !yield(i, nil) {
					return
				}
			}
		}
	}
}

func TestTheTimeoutIsForEachWaitForRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout, each time.Duration
		rows          int
	}{
		"rows in time":               {time.Minute, 50 * time.Second, 3},
		"a wait that takes too long": {time.Minute, 70 * time.Second, 0},
		"without a timeout":          {0, time.Hour, 3},
		"without a timeout, soon":    {0, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rows := 0
				for _, err := range WithRowTimeout(t.Context(), &Run{Timeout: c.timeout}, waits(c.each)) {
					if err == nil {
						rows++
					}
					time.Sleep(time.Hour) // the caller's own time does not count
				}
				if rows != c.rows {
					t.Errorf("%d rows", rows)
				}
			})
		})
	}
}
