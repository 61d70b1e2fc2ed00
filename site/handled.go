package site

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// storeHandled stores the objects of what git hands to the repository's hook proc-receive, such as pushes for review. That hook moves refs of its
// own, and no hook update comes before: then git has locks, and only little could be stored. The objects are still in quarantine, and the
// repository's own hook pre-receive has agreed. What no ref is moved to is dropped when the push has ended.
func (d *Daemon) storeHandled(ctx context.Context, hook pusher.Hook, conn *net.UnixConn, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil || !q.Patient() {
		return err
	}
	if !install.HasOwnHook(r.Path, "proc-receive") {
		return nil // what git hands over is refused
	}
	incoming := hook.Incoming()
	if incoming == "" || !d.storage.Keeps(c, r.Project) {
		return nil
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return err
	}
	moves, err := handledMoves(ctx, repo, q.Body)
	if err != nil || len(moves) == 0 {
		return err
	}
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	p, err := d.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	if repo, err = repo.WithIncoming(incoming); err != nil {
		return err
	}
	waits := d.waitingHook(conn)
	ctx, stop := waits.KeepWaiting(d.work)
	defer stop()
	return p.remember(d.storage.StoreIncoming(ctx, c, &p.objects, r, repo, moves, packs.Limits{Bytes: c.PackLimit, Stored: waits.Stored}))
}

// handledMoves returns what a push brings for refs that git hands to the hook proc-receive.
func handledMoves(ctx context.Context, repo *gitrepo.Repo, body []byte) (moves []refdb.Update, err error) {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return nil, err
	}
	out, err := repo.Command(ctx, "config", "--null", "--get-all", "receive.procReceiveRefs").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, gitrepo.Failure(ctx, err)
	}
	patterns := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for _, l := range lines {
		if u := (refdb.Update{Ref: l.Ref, New: refdb.Value(l.New)}); !u.New.IsDeleted() && config.HandedOver(patterns, l.Ref, refdb.Value(l.Old).IsDeleted()) {
			moves = append(moves, u)
		}
	}
	return moves, nil
}

// storedFor returns what knows of the objects of moves: p, or another push that has brought them, such as one whose hook proc-receive runs p.
func (d *Daemon) storedFor(p *push, r config.Repository, moves []refdb.Update) *objects.Pushed {
	if len(p.objects.Lacking(moves)) == 0 {
		return &p.objects
	}
	for _, other := range d.pushes.all() {
		if other != p && other.objects.Holds(r.Project, moves) {
			return &other.objects
		}
	}
	return &p.objects
}
