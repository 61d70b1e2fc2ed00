package smarthttp

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
)

// daemonLimit is how long the daemon may take to say whether refs have moved. Readers don't need its word.
const daemonLimit = 200 * time.Millisecond

// A state is what git's answer about refs depends on: what the database has of the guarded ones, and what is this site's own. Two
// states are equal only if the answers are.
type state struct {
	key refdb.StateKey
	own own
}

// An own is of the refs that are not guarded, and of the repository's files. It is zero if the daemon does not say.
type own struct {
	moves string // the daemon's mark: another one after each transaction of git
	// past shows, in most cases, that something may have moved refs past the hooks: another start of the daemon, and other files.
	past string
}

// cacheable reports whether an answer that is made from s is good as long as the state is s.
func (s state) cacheable() bool { return s.key.Settled() && s.own != own{} }

// ownFiles are what git's answer depends on beside the refs that hooks tell the daemon about: HEAD, the configuration, where a
// shallow repository ends. The other two show, in most cases, what moved refs past the hooks.
var ownFiles = [...]string{"HEAD", "config", "config.worktree", "shallow", "packed-refs", "reftable/tables.list"}

// ownState returns what is this site's own of the repository at dir: the daemon's mark and the files' times.
func ownState(ctx context.Context, socket, dir string, limit time.Duration) (own, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mark, err := client.Mark(ctx, socket, dir)
	if err != nil {
		return own{}, err
	}
	daemonID, _, _ := strings.Cut(mark, " ")
	text := append(make([]byte, 0, 512), daemonID...)
	for _, name := range ownFiles {
		var s unix.Stat_t
		err := unix.Stat(filepath.Join(dir, name), &s)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			text = append(text, "\n-"...)
			continue
		case err != nil:
			return own{}, err
		}
		for i, n := range [...]int64{int64(s.Ino), s.Size, s.Mtim.Nano(), s.Ctim.Nano()} {
			text = append(text, "\n   "[min(i, 1)])
			text = strconv.AppendInt(text, n, 36)
		}
	}
	return own{moves: mark, past: string(text)}, nil
}
