package moves_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/moves"
)

// While several goroutines append, each reader gets all entries of each of them in order, or learns
// that entries are missing.
func TestReadersWhileOthersAppend(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int64{"large segments": 32 << 20, "small segments": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limit)
			start := r.end()
			const writers, each = 4, 500
			var writing, reading sync.WaitGroup
			written, cancel := context.WithCancel(t.Context())
			for w := range writers {
				writing.Go(func() {
					for i := range each {
						appendOne(t, r.log, i%7 == 0, moves.Entry{Ref: fmt.Sprint(i), Dir: fmt.Sprint("/", w)})
					}
				})
			}
			for range 3 {
				reading.Go(func() {
					next, resets := readAll(t, written, r.log, start)
					for dir, n := range next {
						if n != each {
							t.Errorf("%d of %s are read", n, dir)
						}
					}
					if limit > large && resets > 0 || resets == 0 && len(next) != writers {
						t.Errorf("%d resets, those of %d are read", resets, len(next))
					}
				})
			}
			writing.Wait()
			cancel()
			reading.Wait()
		})
	}
}

func appendOne(t *testing.T, l *moves.Log, begins bool, e moves.Entry) {
	var err error
	if begins {
		var b *moves.Begun
		b, err = l.Begin(e)
		err = errors.Join(err, b.End())
	} else {
		err = l.Append(e)
	}
	if err != nil {
		t.Error(err)
	}
}

// readAll reads until all entries have been written. It returns the next entry of each writer, and
// the number of resets.
func readAll(t *testing.T, written context.Context, l *moves.Log, at moves.Place) (next map[string]int, resets int) {
	next = map[string]int{}
	for {
		last := written.Err() != nil
		p, err := l.Read(at)
		if errors.Is(err, moves.ErrReset) {
			resets++
			clear(next)
			if at, err = l.End(); err == nil {
				continue
			}
		}
		if err != nil {
			t.Error(err)
			return next, resets
		}
		for _, e := range p.Entries {
			var i int
			fmt.Sscan(e.Ref, &i)
			if want, known := next[e.Dir]; i != want && (known || resets == 0) {
				t.Errorf("%s of %s, want %d", e.Ref, e.Dir, want)
			}
			next[e.Dir] = i + 1
		}
		if p.Next == at {
			if last {
				return next, resets
			}
			l.Wait(written, at)
		}
		at = p.Next
	}
}
