package gitrepo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// PackHeader is how many bytes the header of a pack has. A pack without objects has only that, and a checksum.
// https://git-scm.com/docs/gitformat-pack
const PackHeader = 12

// ErrPack: what was read is no pack.
var ErrPack = errors.New("not a pack of git's")

// PackObjects returns how many objects a pack has, by its header.
func PackObjects(header []byte) (int, error) {
	if len(header) < PackHeader || string(header[:4]) != "PACK" {
		return 0, ErrPack
	}
	return int(binary.BigEndian.Uint32(header[8:])), nil
}

// IsShallow reports whether history is cut off here: then no pack can be made of it.
func (r *Repo) IsShallow() bool {
	info, err := os.Stat(filepath.Join(r.common, "shallow"))
	return err == nil && info.Size() > 0
}

// IsPartial reports whether git gets objects from elsewhere once they are needed here: then a pack may lack some.
func (r *Repo) IsPartial(ctx context.Context) (bool, error) {
	out, err := r.Command(ctx, "config", "--get-regexp", `^(extensions\.partialclone|remote\..*\.promisor)$`).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading git's settings of %q: %w", r.path, Failure(ctx, err))
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, " false\n") {
			return true, nil
		}
	}
	return false, nil
}

// Pack writes a pack of all objects that tips reach and bases don't. All are object IDs. Objects of the
// pack may be deltas against objects that bases reach.
func (r *Repo) Pack(ctx context.Context, to io.Writer, tips, bases []string) error {
	// A bitmap would leave out whatever bases reach anywhere in history, which takes longer to check.
	cmd := r.interruptible(ctx, "pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "--no-use-bitmap-index", "-q")
	cmd.Stdin = revisions(tips, bases)
	cmd.Stdout = to
	var complaints bytes.Buffer
	cmd.Stderr = &limited{to: &complaints, left: 1 << 16}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("packing objects of %q: %w", r.path, failure(ctx, err, complaints.String()))
	}
	return nil
}

// Boundary returns commits which known reach such that what tips reach beside known is the same as beside these
// commits: where the histories meet. All known must be here.
func (r *Repo) Boundary(ctx context.Context, tips, known []string) ([]string, error) {
	cmd := r.interruptible(ctx, "rev-list", "--boundary", "--stdin")
	cmd.Stdin = revisions(tips, known)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("comparing histories of %q: %w", r.path, Failure(ctx, err))
	}
	beside := map[string]bool{}
	var boundary []string
	for line := range strings.Lines(string(out)) {
		id, onBoundary := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-")
		if onBoundary {
			boundary = append(boundary, id)
		} else {
			beside[id] = true
		}
	}
	// A tip that known reach is where they meet, too.
	commits, err := r.commitsOf(ctx, tips)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, id := range boundary {
		seen[id] = true
	}
	for _, id := range commits {
		if !beside[id] && !seen[id] {
			seen[id] = true
			boundary = append(boundary, id)
		}
	}
	return boundary, nil
}

// commitsOf returns the commits that the ids are or, as tags, point to.
func (r *Repo) commitsOf(ctx context.Context, ids []string) (commits []string, err error) {
	cmd := r.interruptible(ctx, "cat-file", "--batch-check=%(objectname) %(objecttype)")
	cmd.Stdin = strings.NewReader(strings.Join(ids, "^{}\n") + "^{}\n")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("looking for objects of %q: %w", r.path, Failure(ctx, err))
	}
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutSuffix(line, " commit\n"); ok {
			commits = append(commits, id)
		}
	}
	return commits, nil
}

// interruptible is a command that gets time to remove its files when its context ends it.
func (r *Repo) interruptible(ctx context.Context, args ...string) *exec.Cmd {
	cmd := r.Command(ctx, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// revisions is the input that names what tips reach and bases don't.
func revisions(tips, bases []string) io.Reader {
	var in strings.Builder
	for _, id := range tips {
		in.WriteString(id + "\n")
	}
	for _, id := range bases {
		in.WriteString("^" + id + "\n")
	}
	return strings.NewReader(in.String())
}

// failure is [Failure] of a command whose error output was read.
func failure(ctx context.Context, err error, complaints string) error {
	return Failure(ctx, withStderr(err, []byte(complaints)))
}
