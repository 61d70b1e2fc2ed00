package main

import (
	"context"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// afterRemoval is a driver that does something after each chunk of a removal.
type afterRemoval struct {
	refdb.Driver
	do func()
}

func (d afterRemoval) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	n, err := d.Driver.Remove(ctx, r)
	d.do()
	return n, err
}

func (d afterRemoval) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	n, err := d.Driver.PurgeTombstones(ctx, r)
	d.do()
	return n, err
}

func TestAnInterruptedRemovalSaysHowFarItGot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, branches(1500)...)
	w.importing(t, r, exit.OK)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.wrap = func(d refdb.Driver) refdb.Driver {
		return afterRemoval{d, func() { cancel(&exit.Interrupted{Signal: syscall.SIGINT}) }}
	}
	got := w.runIn(t, ctx, "project", "remove", "p", "--yes")
	got.is(t, exit.BySignal+int(syscall.SIGINT), "p: not finished: removed 1000 refs; run the command again to continue")
	got.isTwoLines(t, "p: not finished")
	w.wrap = nil
	if out := w.do(t, "project", "remove", "p", "--yes"); out != "removed 500 refs of p\n" {
		t.Errorf("%s", out)
	}
}
