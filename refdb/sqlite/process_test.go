package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// partVariable is the environment variable that holds the name of the part to play, in the other
// processes that a test starts from its own binary.
const partVariable = "REFDB_SQLITE_TEST_PART"

func parts() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		"count":   count,
		"pairs":   pairs,
		"linger":  linger,
		"busy":    busy,
		"limited": limited,
		"open":    openOnce,
	}
}

// A process plays a part.
type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// play starts a process, which is killed at the end of the test if it still runs. If unprivileged,
// the process does not run as root.
func play(t testing.TB, unprivileged bool, part string, args ...string) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), partVariable+"="+part)
	cmd.Stderr = os.Stderr
	if unprivileged && os.Geteuid() == 0 {
		const nobody = 65534
		cmd.Path = "/proc/self/exe" // the binary's own path may lead through directories that only root may read
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

// kill sends SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// line waits for the next line of the process.
func (p *process) line(t testing.TB) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the process printed %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// end waits for the process and returns the rest of its output.
func (p *process) end(t testing.TB) string {
	t.Helper()
	said, err := io.ReadAll(p.out)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return strings.TrimSpace(string(said))
}

func TestP1ProcessesNeverOverlapUnderALock(t *testing.T) {
	t.Parallel()
	url := local.SQLite(t).URL() + "?synchronous=normal"
	const n, each = 4, 100
	var all []*process
	dir := t.TempDir()
	for range n {
		all = append(all, play(t, false, "count", url, filepath.Join(dir, "inside"), strconv.Itoa(each)))
	}
	for _, p := range all {
		p.end(t)
	}
	if got := value(t, openAgain(t, url), refA); got != driver.Value(strconv.Itoa(n*each)) {
		t.Errorf("the processes counted to %s, want %d", got, n*each)
	}
}

// count increments a number under a lock, as often as its arguments require.
func count(args []string) error {
	url, inside, often := args[0], args[1], args[2]
	n, err := strconv.Atoi(often)
	if err != nil {
		return err
	}
	ctx := context.Background()
	d, err := sqlite.OpenWithin(ctx, url, patience)
	if err != nil {
		return err
	}
	defer d.Close()
	name := fmt.Sprintf("site/%d", os.Getpid())
	var last driver.Token
	for n > 0 {
		a, err := d.Acquire(ctx, request(name, refA, refB))
		if errors.Is(err, driver.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		if a.Token <= last {
			return fmt.Errorf("token %d after %d", a.Token, last)
		}
		last = a.Token
		if err := os.Mkdir(inside, 0o777); err != nil {
			return fmt.Errorf("another process is in the critical section: %w", err)
		}
		var old driver.Value
		if len(a.Refs) > 0 {
			old = a.Refs[0].Value
		}
		number, _ := strconv.Atoi(string(old))
		if err := os.Remove(inside); err != nil {
			return err
		}
		if err := change(ctx, d, driver.UpdateRequest{
			Updates: []driver.Update{{Ref: refA, Old: old, New: driver.Value(strconv.Itoa(number + 1))}},
			Fence:   &driver.Fence{Refs: []string{refA, refB}, Owner: name, Token: a.Token, Release: true},
		}); err != nil {
			return err
		}
		n--
	}
	return nil
}

func TestAKilledProcessLeavesAllOfATransactionOrNothing(t *testing.T) {
	t.Parallel()
	d, url := open(t)
	for range 15 {
		p := play(t, false, "pairs", url)
		for range 1 + rand.N(60) {
			p.line(t)
		}
		p.kill()

		// The last write of both refs is one update.
		refs, err := d.Get(t.Context(), project, []string{refA, refB})
		if err != nil {
			t.Fatal(err)
		}
		if len(refs) != 2 || refs[0].Value != refs[1].Value || refs[0].Op != refs[1].Op {
			t.Fatalf("the refs hold %v", refs)
		}
		// Either both locks exist, or neither.
		left := locks(t, d)
		if len(left) != 0 && (len(left) != 2 || left[0].Token != left[1].Token) {
			t.Fatalf("the locks are %v", left)
		}
		// Later writers are not blocked.
		update(t, d, "refs/heads/other", value(t, d, "refs/heads/other"), v1)
	}
	if got := faults(t, d); len(got) != 0 {
		t.Errorf("in the end: %v", got)
	}
}

// pairs locks, moves and releases two refs, until it is killed.
func pairs(args []string) error {
	ctx := context.Background()
	d, err := sqlite.OpenWithin(ctx, args[0], patience)
	if err != nil {
		return err
	}
	for {
		r := request(fmt.Sprintf("site/%d", os.Getpid()), refA, refB)
		r.StaleAfter = time.Millisecond // so that the next process can take the locks over
		a, err := d.Acquire(ctx, r)
		if errors.Is(err, driver.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		var old driver.Value
		if len(a.Refs) > 0 {
			old = a.Refs[0].Value
		}
		next := driver.Value(fmt.Sprint(a.Token))
		for i, u := range []driver.UpdateRequest{
			{Updates: []driver.Update{{Ref: refA, Old: old, New: v1}, {Ref: refB, Old: old, New: v1}}},
			{Updates: []driver.Update{{Ref: refA, Old: v1, New: next}, {Ref: refB, Old: v1, New: next}}},
		} {
			u.ID, u.Fence = fmt.Sprint(i, next), &driver.Fence{Refs: r.Refs, Owner: r.Owner, Token: a.Token}
			if i == 1 {
				u.Fence.Release = true
			}
			if err := change(ctx, d, u); err != nil {
				return err
			}
		}
		fmt.Println(next)
	}
}

func TestAProcessInsideItsTransactionBlocksWritersUntilItDies(t *testing.T) {
	t.Parallel()
	d, url := open(t)
	update(t, d, refA, "", v1)
	p := play(t, false, "linger", url)
	p.line(t)

	d.SetPatience(20 * time.Millisecond)
	if err := put(t.Context(), d, refA, v1, v2); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("during its transaction: %v", err)
	}
	if got := value(t, d, refA); got != v1 {
		t.Errorf("during its transaction, the ref holds %q", got)
	}
	d.SetPatience(patience)
	waiting := make(chan error)
	go func() { waiting <- put(context.WithoutCancel(t.Context()), d, refA, v1, v2) }()
	p.kill()
	if err := <-waiting; err != nil {
		t.Errorf("after it was killed: %v", err)
	}
	if got := locks(t, d); len(got) != 0 {
		t.Errorf("the killed process left %v", got)
	}
}

// linger writes and never commits.
func linger(args []string) error {
	d, err := sqlite.Open(context.Background(), args[0])
	if err != nil {
		return err
	}
	return d.Write(context.Background(), func(exec func(string, ...any) error) error {
		if err := exec(`UPDATE refs SET value = 'half done'`); err != nil {
			return err
		}
		if err := exec(`INSERT INTO locks (project, ref, owner) VALUES ('p', 'r', 'o')`); err != nil {
			return err
		}
		fmt.Println("inside")
		select {}
	})
}

func TestBusyProcessesAlternate(t *testing.T) {
	t.Parallel()
	d, url := open(t)
	a, b := play(t, false, "busy", url), play(t, false, "busy", url)
	for range 3 {
		a.line(t)
		b.line(t)
	}
	// If the other processes did not let d in, it would wait for ever.
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		if err := put(ctx, d, fmt.Sprintf("refs/heads/mine/%d", i), "", v1); err != nil {
			t.Errorf("an occasional writer: %v", err)
		}
		cancel()
	}
}

// busy makes many goroutines write continuously until the process is killed. It reports every
// hundred writes.
func busy(args []string) error {
	ctx := context.Background()
	d, err := sqlite.OpenWithin(ctx, args[0], patience)
	if err != nil {
		return err
	}
	done := make(chan error)
	for w := range 16 {
		go func() {
			for i := 0; ; i++ {
				done <- put(ctx, d, fmt.Sprintf("refs/heads/%d/%d/%d", os.Getpid(), w, i), "", v1)
			}
		}()
	}
	for n := 1; ; n++ {
		if err := <-done; err != nil {
			return err
		}
		if n%100 == 0 {
			fmt.Println(n)
		}
	}
}

func TestAFileSizeLimitIsAClearErrorAndLeavesNoPartialWrites(t *testing.T) {
	t.Parallel()
	_, url := open(t)
	play(t, false, "limited", url).end(t)
}

// limited reaches a limit on the size of files, in the middle of transactions and in their COMMIT.
func limited(args []string) error {
	ctx := context.Background()
	d, err := sqlite.Open(ctx, args[0])
	if err != nil {
		return err
	}
	defer d.Close()
	if err := put(ctx, d, refA, "", v1); err != nil {
		return err
	}
	var unlimited syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		return err
	}
	for _, size := range []int{10, driver.MaxUpdateRefs} {
		updates := []driver.Update{{Ref: refA, Old: v1, New: v2}}
		for i := range size - 1 {
			updates = append(updates, driver.Update{Ref: fmt.Sprintf("refs/heads/x/%05d/%s", i, strings.Repeat("y", 100)), New: v1})
		}
		x := driver.UpdateRequest{Updates: updates}
		limit := unlimited
		limit.Cur = 4096 // less than the log needs for one page
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		err := change(ctx, d, x)
		if driver.ClassOf(err) != driver.Permanent || !strings.Contains(fmt.Sprint(err), ": check the file's disk, its space and quota") {
			return fmt.Errorf("%d updates on a full disk: %v", size, err)
		}
		page, err := d.List(ctx, driver.RefQuery{Project: project, Limit: 10})
		if err != nil || len(page.Refs) != 1 || page.Refs[0].Value != v1 {
			return fmt.Errorf("%d updates on a full disk left %v, %v", size, page, err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
			return err
		}
		if err := change(ctx, d, x); err != nil {
			return fmt.Errorf("%d updates with free space again: %w", size, err)
		}
		if n, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: 2 * size}); err != nil || n != size {
			return fmt.Errorf("removed %d of %d: %w", n, size, err)
		}
		if err := put(ctx, d, refA, "", v1); err != nil {
			return err
		}
	}
	return nil
}

func TestAReadOnlyFileIsRefused(t *testing.T) {
	t.Parallel()
	const access = "this process needs write access to the file, its directory and its file system"
	for _, e := range []struct {
		name      string
		dir, file os.FileMode
		want      string
	}{
		{"file read-only", 0o777, 0o444, "open: it can't be written to: " + access},
		{"directory read-only", 0o555, 0o666, "open: attempt to write a readonly database (1544): " + access},
		{"both", 0o555, 0o444, "open: it can't be written to: " + access},
		{"file of others", 0o777, 0o000, "open: it can't be written to: " + access},
	} {
		t.Run(e.name, func(t *testing.T) {
			// t.TempDir is in a directory that only its owner may read.
			dir, err := os.MkdirTemp("", "refdb")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = os.Chmod(dir, 0o777)
				_ = os.RemoveAll(dir)
			})
			path := filepath.Join(dir, "refdb.db")
			migrate(t, path, func(m migrator) error { return m.Up(t.Context()) })
			if err := errors.Join(os.Chmod(path, e.file), os.Chmod(dir, e.dir)); err != nil {
				t.Fatal(err)
			}
			got := play(t, true, "open", "sqlite:"+path).end(t)
			if !strings.HasSuffix(got, ": "+e.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant … %s", got, e.want)
			}
			if left, err := filepath.Glob(path + "-*"); err != nil || len(left) > 0 {
				t.Errorf("the process left %v, %v, to which the file's owner can't write", left, err)
			}
		})
	}
}

func TestAFileOfAnotherUserBesideTheDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"-wal", "-shm"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "refdb")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			path := filepath.Join(dir, "refdb.db")
			migrate(t, path, func(m migrator) error { return m.Up(t.Context()) })
			if err := errors.Join(os.Chmod(path, 0o666), os.Chmod(dir, 0o777), os.WriteFile(path+name, nil, 0o444)); err != nil {
				t.Fatal(err)
			}
			want := "open: " + path + name + " can't be written to"
			if got := play(t, true, "open", "sqlite:"+path).end(t); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
			// The advice works.
			if err := os.Chmod(path+name, 0o666); err != nil {
				t.Fatal(err)
			}
			if got := play(t, true, "open", "sqlite:"+path).end(t); got != "it opened" {
				t.Errorf("after the advice: %s", got)
			}
		})
	}
}

// openOnce reports the error of opening a file.
func openOnce(args []string) error {
	d, err := sqlite.Open(context.Background(), args[0])
	if err == nil {
		err = errors.Join(errors.New("it opened"), d.Close())
	}
	fmt.Println(err)
	return nil
}
