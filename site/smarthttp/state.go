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

// daemonLimit is how long a request waits for the daemon's mark. Reads are served without it, too.
const daemonLimit = 200 * time.Millisecond

// A state determines git's answer about refs: the database's state of the guarded refs, and the
// repository's local state. If two states are equal, so are the answers.
type state struct {
	key   refdb.StateKey
	local localState
}

// A localState describes the refs that are not guarded, and the repository's files. It is zero if
// the daemon did not answer.
type localState struct {
	mark string // the daemon's mark, which changes after each transaction of git
	// fingerprint changes with the start of the daemon and with the repository's files. In most
	// cases it changes if refs may have moved past the hooks.
	fingerprint string
}

// cacheable reports whether an answer that is made from s is valid as long as the state is s.
func (s state) cacheable() bool { return s.key.Settled() && s.local != localState{} }

// localFiles are the files on which git's answer depends, besides the refs whose moves hooks report
// to the daemon: HEAD, the configuration, and the boundary of a shallow repository. The last two
// files, which hold refs, change in most cases if a ref moves past the hooks.
var localFiles = [...]string{"HEAD", "config", "config.worktree", "shallow", "packed-refs", "reftable/tables.list"}

// readLocalState returns the local state of the repository in dir: the daemon's mark, and a
// fingerprint that contains the files' times.
func readLocalState(ctx context.Context, socket, dir string, limit time.Duration) (localState, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mark, err := client.Mark(ctx, socket, dir)
	if err != nil {
		return localState{}, err
	}
	daemonID, _, _ := strings.Cut(mark, " ")
	text := append(make([]byte, 0, 512), daemonID...)
	for _, name := range localFiles {
		var s unix.Stat_t
		err := unix.Stat(filepath.Join(dir, name), &s)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			text = append(text, "\n-"...)
			continue
		case err != nil:
			return localState{}, err
		}
		for i, n := range [...]int64{int64(s.Ino), s.Size, s.Mtim.Nano(), s.Ctim.Nano()} {
			text = append(text, "\n   "[min(i, 1)])
			text = strconv.AppendInt(text, n, 36)
		}
	}
	return localState{mark: mark, fingerprint: string(text)}, nil
}
