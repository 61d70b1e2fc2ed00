package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A Settled value is one that a ref got here and in the database, by a push that this site finished
// or by a sync. The repository keeps the latest one of each ref, because a database that is
// restored from a backup has an older value again, as if somebody had moved the ref back. The time
// of the database's row tells the two cases apart: in a restored database the row was written
// before the value was settled. Both times are the database's.
//
// Lines are appended to the file after the database has answered, without a sync to the disk: a
// crash of the machine may lose the latest lines, and with them the protection of those values.
type Settled struct {
	Ref   string
	Value refdb.Value
	// At is when the value was settled, or a little earlier. A row that was written before it is older.
	// For a push it is when its intent was recorded: a move that another site makes right after the
	// push must not count as older. A token's time may be ahead of the clock.
	At time.Time
}

// SettledFile returns the path of the file in the Git directory dir.
func SettledFile(dir string) string { return filepath.Join(dir, "refdb", "settled") }

// NoteSettled appends to the file of the repository at dir, and returns its size.
func NoteSettled(dir string, values []Settled) (size int64, err error) {
	text := []byte{'\n'} // whatever a crash has left of the line before
	for _, s := range values {
		text = fmt.Appendf(text, "%d %s %s\n", s.At.UnixMicro(), s.Value, s.Ref)
	}
	f, err := openSettled(SettledFile(dir), syscall.LOCK_SH)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return 0, err
	}
	return f.Seek(0, io.SeekEnd)
}

// openSettled opens and locks the file: shared to append to it, exclusive to replace it.
func openSettled(path string, lock int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), lock)
		for errors.Is(err, syscall.EINTR) {
			err = syscall.Flock(int(f.Fd()), lock)
		}
		var mine, there fs.FileInfo
		if err == nil {
			mine, err = f.Stat()
		}
		if err == nil {
			there, err = os.Stat(path)
		}
		if err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// settledAt returns the latest settled value of each ref that is wanted. It skips lines that a crash has damaged.
func settledAt(dir string, wanted func(ref []byte) bool) (map[string]Settled, error) {
	text, err := os.ReadFile(SettledFile(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading which values were settled: %w", err)
	}
	latest := map[string]Settled{}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		// There may be a line for each of very many refs.
		if !wanted(line[bytes.LastIndexByte(line, ' ')+1:]) {
			continue
		}
		fields := strings.SplitN(string(line), " ", 3)
		if len(fields) < 3 || !refdb.Value(fields[1]).IsObjectID() || driver.CheckRef(fields[2]) != nil {
			continue
		}
		if micros, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			latest[fields[2]] = Settled{fields[2], refdb.Value(fields[1]), time.UnixMicro(micros)}
		}
	}
	return latest, nil
}

// CompactSettled reduces the file to one line for each ref, and returns its size.
func CompactSettled(dir string) (size int64, err error) {
	path := SettledFile(dir)
	f, err := openSettled(path, syscall.LOCK_EX)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	latest, err := settledAt(dir, func([]byte) bool { return true })
	if err != nil {
		return 0, err
	}
	var text []byte
	for _, s := range latest {
		text = fmt.Appendf(text, "%d %s %s\n", s.At.UnixMicro(), s.Value, s.Ref)
	}
	return int64(len(text)), durable.WriteFile(path, text, 0o644)
}

// SetBack returns the refs of looks for which the database was set back to an older value: the
// value here was settled after the database's row was written. It leaves out refs that would lose
// no commit by taking the database's value. Rows reads the database's rows of refs, after looks.
func SetBack(ctx context.Context, repo *gitrepo.Repo, looks []Look, rows func(refs []string) ([]refdb.Ref, error)) (map[string]bool, error) {
	looked := make(map[string]bool, len(looks))
	for _, l := range looks {
		looked[l.Ref] = true
	}
	latest, err := settledAt(repo.Dir(), func(ref []byte) bool { return looked[string(ref)] })
	if err != nil || len(latest) == 0 {
		return nil, err
	}
	suspects := map[string]Look{}
	var names []string
	for _, l := range looks {
		if s, known := latest[l.Ref]; known && l.Broken == "" && !l.Agree() && s.Value.Equivalent(l.Local) {
			suspects[l.Ref] = l
			names = append(names, l.Ref)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	found, err := rows(names)
	if err != nil {
		return nil, err
	}
	older := map[string]bool{}
	for _, name := range names {
		older[name] = suspects[name].Global == refdb.Unknown // it had a row
	}
	for _, row := range found {
		l := suspects[row.Name]
		if row.Value != l.Global || row.Time.IsZero() || !row.Time.Before(latest[row.Name].At) {
			continue
		}
		if older[row.Name], err = loses(ctx, repo, l.Local, l.Global); err != nil {
			return nil, err
		}
	}
	return older, nil
}

// loses reports whether a ref that moves between the values loses commits, or comes back after it
// was deleted. It reports false while the objects are not here, because then it can't tell.
func loses(ctx context.Context, repo *gitrepo.Repo, from, to refdb.Value) (bool, error) {
	if from.IsAbsent() || to.IsAbsent() {
		return true, nil
	}
	_, err := repo.Command(ctx, "merge-base", "--is-ancestor", string(from), string(to)).Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil || !errors.As(err, &exit):
	case exit.ExitCode() == 1:
		return true, nil
	case strings.Contains(string(exit.Stderr), "Not a valid commit name"): // one of them is not here, or no commit
		here, err := repo.Present(ctx, []string{string(to)})
		return len(here) > 0, err
	}
	return false, fmt.Errorf("comparing values: %w", gitrepo.Failure(ctx, err))
}
