package page

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyVisitorsReadAsMuchAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, reads := newShared[int](), 0
		read := func() (int, error) {
			time.Sleep(time.Second)
			reads++
			return reads, nil
		}
		var visitors sync.WaitGroup
		for range 100 {
			visitors.Go(func() {
				if got, err := s.get(t.Context(), read); got != 1 || err != nil {
					t.Errorf("got %d, %v", got, err)
				}
			})
		}
		visitors.Wait()
		time.Sleep(sharedFor)
		if got, err := s.get(t.Context(), read); got != 2 || err != nil {
			t.Errorf("later: got %d, %v", got, err)
		}
	})
}

func TestAVisitorDoesNotWaitForeverForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, failed := newShared[int](), errors.New("down")
		go s.get(t.Context(), func() (int, error) {
			time.Sleep(time.Minute)
			return 0, failed
		})
		synctest.Wait()
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.get(limited, func() (int, error) { return 1, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		if _, err := s.get(t.Context(), func() (int, error) { return 1, nil }); !errors.Is(err, errSlow) || time.Since(began) != roomLimit {
			t.Errorf("without a limit of its own: %v, after %s", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		if got, err := s.get(t.Context(), func() (int, error) { return 1, nil }); got != 1 || err != nil {
			t.Errorf("a failure is shared: %d, %v", got, err)
		}
	})
}
