package sqlite_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// lockAndRelease has that many goroutines share b.N acquisitions and releases, each of its own ref.
func lockAndRelease(b *testing.B, goroutines int, parameters string) {
	_, url := open(b)
	d := openAgain(b, url+parameters)
	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	var all sync.WaitGroup
	b.ResetTimer()
	for g := range goroutines {
		all.Go(func() {
			ref := fmt.Sprintf("refs/heads/%d", g)
			for range work {
				a, err := d.Acquire(b.Context(), request("owner/1", ref))
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := d.Release(b.Context(), []refdb.Held{{Project: project, Ref: ref, Token: a.Token}}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

func BenchmarkLockAndRelease(b *testing.B) {
	for _, parameters := range []string{"?synchronous=full", "?synchronous=normal"} {
		for _, n := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", parameters[1:], n), func(b *testing.B) { lockAndRelease(b, n, parameters) })
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 1000, refdb.MaxUpdateRefs} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, _ := open(b)
			move(b, d, n, "", v1)
			values := []refdb.Value{v1, v2}
			for i := 0; b.Loop(); i++ {
				move(b, d, n, values[i%2], values[(i+1)%2])
			}
		})
	}
}

func move(b *testing.B, d *sqlite.Driver, n int, from, to refdb.Value) {
	b.Helper()
	updates := make([]refdb.Update, n)
	for i := range updates {
		updates[i] = refdb.Update{Ref: fmt.Sprintf("refs/heads/feature/%05d", i), Old: from, New: to}
	}
	if err := d.Update(b.Context(), refdb.Transaction{Project: project, ID: "op", Updates: updates}); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBeat(b *testing.B) {
	for _, n := range []int{1, 1000, refdb.MaxLockRefs} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, _ := open(b)
			refs := make([]string, n)
			held := make([]refdb.Held, n)
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/feature/%05d", i)
			}
			a := acquire(b, d, refs...)
			for i, ref := range refs {
				held[i] = refdb.Held{Project: project, Ref: ref, Token: a.Token}
			}
			for b.Loop() {
				results, err := d.Beat(b.Context(), "owner/1", held)
				if err != nil || results[n-1] != refdb.Beaten {
					b.Fatal(results[n-1], err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{1, 1000, refdb.MaxUpdateRefs} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, _ := open(b)
			move(b, d, n, "", v1)
			refs := make([]string, n)
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/feature/%05d", i)
			}
			for b.Loop() {
				got, err := d.Get(b.Context(), project, refs)
				if err != nil || len(got) != n {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
