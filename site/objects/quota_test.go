package objects

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// A still is a daemon that does its work at once.
type still struct{ tasks int }

func (*still) Config() *config.Config { return &config.Config{Timeout: time.Minute} }
func (*still) RecordHealth(error)     {}
func (*still) RetryLocked(ctx context.Context, _ *config.Config, request func(context.Context) error) error {
	return request(ctx)
}
func (s *still) Go(f func(context.Context)) { s.tasks++; f(context.Background()) }

func TestAPushThatStallsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		site := &still{}
		s := &Storage{DB: db, Site: site, Logger: slog.New(slog.DiscardHandler)}
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
		if s.makeRoom(third) || site.tasks > 0 {
			t.Error("a push that has just stored its objects is dropped for another")
		}
		time.Sleep(stalledFor/2 + time.Second)
		if s.makeRoom(first) {
			t.Error("a push makes room for itself, or lately stored packs do")
		}
		if !s.makeRoom(third) || site.tasks != 1 || first.Holds(project, firstMoves) || !second.Holds(project, secondMoves) || !third.Holds(project, thirdMoves) {
			t.Errorf("the push that has stalled is not the one that is dropped: %d were", site.tasks)
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
