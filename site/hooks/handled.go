package hooks

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

// storeHandled stores the objects of the refs that git hands to the repository's proc-receive hook,
// such as pushes for review. That hook moves refs by itself, and git runs no update hook before;
// then git holds locks, so that only small packs could be stored. The objects are still in
// quarantine, and the repository's own pre-receive hook has agreed. Objects that no ref is moved to
// are dropped when the push has ended.
func (h *Hooks) storeHandled(ctx context.Context, hook pusher.Hook, conn *net.UnixConn, q wire.Request) error {
	c := h.State.Config()
	r, err := c.Find(q.Dir)
	if err != nil || !q.Patient() {
		return err
	}
	if !install.HasOwnHook(r.Path, "proc-receive") {
		return nil // what git hands over is refused
	}
	incoming := hook.Incoming()
	if incoming == "" || !h.Storage.Keeps(c, r.Project) {
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
	if err := h.State.AwaitServing(ctx); err != nil {
		return err
	}
	p, err := h.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	if repo, err = repo.WithIncoming(incoming); err != nil {
		return err
	}
	waits := h.Waiting(conn)
	ctx, stop := waits.KeepWaiting(h.State.Work)
	defer stop()
	return p.remember(h.Storage.StoreIncoming(ctx, c, &p.objects, r, repo, moves, packs.Limits{Bytes: c.PackLimit, Stored: waits.Stored}))
}

// handledMoves returns the moves of a push whose refs git hands to the proc-receive hook.
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

// storedFor returns the record of the objects stored for moves: that of p, or that of another push
// which has brought the objects, such as one whose proc-receive hook runs p.
func (h *Hooks) storedFor(p *push, r config.Repository, moves []refdb.Update) *objects.Pushed {
	if len(p.objects.Lacking(moves)) == 0 {
		return &p.objects
	}
	for _, other := range h.pushes.all() {
		if other != p && other.objects.Holds(r.Project, moves) {
			return &other.objects
		}
	}
	return &p.objects
}
