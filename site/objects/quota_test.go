package objects

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// A droppings counts the packs that are dropped.
type droppings struct {
	refdb.Driver
	driver.PackStore
	n atomic.Int64
}

func (d *droppings) DropPack(ctx context.Context, id string) error {
	d.n.Add(1)
	return d.PackStore.DropPack(ctx, id)
}

func TestAPushThatStallsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := memory.New().Open()
		dropped := &droppings{Driver: open, PackStore: open.(driver.PackStore)}
		db, err := refdb.New(dropped, refdb.Options{Site: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		state := serving.New(&config.Config{Timeout: time.Minute}, nil)
		state.Work = t.Context()
		s := &Storage{DB: db, State: state, Logger: slog.New(slog.DiscardHandler)}
		drops := func() int64 {
			state.Tasks.Wait()
			return dropped.n.Load()
		}
		const project = "team/app"
		push := func(id string, size int64) (*Pushed, []refdb.Update) {
			o, moves := &Pushed{}, []refdb.Update{{Ref: "refs/heads/" + id, New: refdb.Value(id)}}
			o.made(packs.Made{ID: id}, project, size, moves)
			s.unused.Add(size)
			s.hold(o)
			return o, moves
		}
		first, firstMoves := push("1111111111111111111111111111111111111111", unusedPackQuota/2)
		time.Sleep(stalledFor / 2)
		second, secondMoves := push("2222222222222222222222222222222222222222", unusedPackQuota/2)
		third, thirdMoves := push("3333333333333333333333333333333333333333", unusedPackQuota/4)
		if s.makeRoom(third) || drops() > 0 {
			t.Error("a push that has just stored its objects is dropped for another")
		}
		time.Sleep(stalledFor/2 + time.Second)
		if s.makeRoom(first) {
			t.Error("a push makes room for itself, or lately stored packs do")
		}
		if !s.makeRoom(third) || drops() != 1 || first.Holds(project, firstMoves) || !second.Holds(project, secondMoves) || !third.Holds(project, thirdMoves) {
			t.Errorf("the push that has stalled is not the one that is dropped: %d were", drops())
		}
		if n := s.unused.Load(); n != unusedPackQuota/2+unusedPackQuota/4 {
			t.Errorf("%d bytes are counted", n)
		}
		// Its end counts nothing twice, nor does a use.
		s.DropUnused(first)
		for _, p := range second.used([]string{"2222222222222222222222222222222222222222"}) {
			s.uncount(p)
		}
		s.DropUnused(second)
		s.DropUnused(third)
		if n := s.unused.Load(); n != 0 || len(s.holders) > 0 {
			t.Errorf("%d bytes are counted at the end, of %d pushes", n, len(s.holders))
		}
	})
}
