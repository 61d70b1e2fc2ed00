package sqlite_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 1000, driver.MaxUpdateRefs} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, _ := open(b)
			move(b, d, n, "", v1)
			values := []driver.Value{v1, v2}
			for i := 0; b.Loop(); i++ {
				move(b, d, n, values[i%2], values[(i+1)%2])
			}
		})
	}
}

func move(b *testing.B, d *sqlite.Driver, n int, from, to driver.Value) {
	b.Helper()
	updates := make([]driver.Update, n)
	for i := range updates {
		updates[i] = driver.Update{Ref: fmt.Sprintf("refs/heads/feature/%05d", i), Old: from, New: to}
	}
	if err := change(b.Context(), d, driver.UpdateRequest{Origin: driver.Origin{ID: rand.Text(), Owner: owner}, Updates: updates}); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBeat(b *testing.B) {
	for _, n := range []int{1, 1000, driver.MaxLockRefs} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, _ := open(b)
			refs := make([]string, n)
			ids := make([]driver.LockID, n)
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/feature/%05d", i)
			}
			a := acquire(b, d, refs...)
			for i, ref := range refs {
				ids[i] = driver.LockID{Project: project, Ref: ref, Owner: owner, Token: a.Token}
			}
			for b.Loop() {
				results, err := d.Beat(b.Context(), ids)
				if err != nil || results[n-1] != driver.BeatRenewed {
					b.Fatal(results[n-1], err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{1, 1000, driver.MaxUpdateRefs} {
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
