package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/jobcontrol"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/locking"
	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// maxKillAfter is the longest default of --kill-after.
	maxKillAfter = 5 * time.Second
	// marginPart is the part of --stale-after, a fifth, before whose start a holder that can't
	// renew its lock is notified: others can take the lock when it is over.
	marginPart = 5

	exitNotExecutable = 126
	exitNotFound      = 127
)

func (a *app) lockCommand() *cobra.Command {
	l := &lockRun{app: a}
	cmd := &cobra.Command{
		Use:   "lock [flags] PROJECT (REF... | --shared NAME | --exclusive NAME) -- COMMAND [ARG...]",
		Short: "Run a command while holding the lock on refs, or a lease",
		Long: `Run a command while holding the lock on one or more refs of a project, all or none, and release the lock when the
command ends. If others hold the lock, refdbctl waits, as long as necessary or for --wait at most; with --try it does
not wait. When it starts waiting, it names the holder on stderr. With --wait it also waits for a database that is
down. A command that already runs under the lock can't take it again: the request is refused, because it would
deadlock.

With --shared or --exclusive the command runs under a lease of the project instead. Any number of commands can hold a
lease with --shared at the same time; with --exclusive a command holds it alone. NAME is any text of at most 500
bytes. Requests are served in order. A command that runs under a lease can't take the same lease again, in either
mode. REFDB_REFS then names the row of the lease, and REFDB_TOKEN is its ticket: "refdbctl refs put --token
$REFDB_TOKEN --fence $REFDB_REFS" writes any ref of the project while the lease stands.

The command's environment has
  - REFDB_PROJECT;
  - REFDB_REFS, one ref to a line; if the refs are more than 64 KiB, REFDB_REFS_FILE instead, which names a file with
    the refs;
  - REFDB_OWNER and REFDB_TOKEN. The token is a number that is larger for each later holder: a resource that the
    command writes to should refuse a token smaller than the largest it has seen; and
  - with --pass-db, REFDB_URL.

"refdbctl refs put --token $REFDB_TOKEN", which takes the owner from REFDB_OWNER, writes a locked ref only while the
lock stands.

The command runs in a process group of its own. On a terminal the group gets the foreground (unless standard output is
a pipe), so that the command can read from the terminal. Ctrl-C reaches only the command; Ctrl-Z stops both the
command and refdbctl, and the lock goes stale if they are not continued soon. SIGINT, SIGTERM, SIGHUP, SIGQUIT,
SIGUSR1 and SIGUSR2 sent to refdbctl are forwarded to the group.

If the lock is lost, the group gets SIGTERM, and SIGKILL --kill-after later. If the lock can't be renewed because the
database is unreachable, refdbctl gives it up a fifth of --stale-after before others may take it. --kill-after is at
most that long, so that the command has ended by then. If the lock was purged, or refdbctl was frozen for too long to
renew it, others may hold it immediately: only a check of REFDB_TOKEN protects against that.

If refdbctl itself is killed with -9, on Linux the command is killed immediately, but not the processes that it has
started; on other systems the command continues. The lock stands until it is stale.

Background processes that the command leaves running are not waited for, and run without the lock.

If a signal ends the command, refdbctl dies of the same signal, so that Ctrl-C ends a script that runs refdbctl as if
the script ran the command directly. If the caller made refdbctl ignore SIGHUP or SIGINT, as nohup does, both refdbctl
and the command ignore it.

The exit status is the command's; as seen by a shell, 128+N if signal N ended the command. It is 126 if the command
can't be executed and 127 if it is not found; in both cases no lock was taken. It is 3, or the value of
--conflict-exit-code, if others hold the lock, and 4 if the lock was lost, whatever the command's status was. A
release that does not reach the database is retried for --timeout. If the lock can't be released, that is an error:
the lock goes stale by itself.`,
		Example: `  refdbctl lock my/project refs/heads/main -- ./deploy.sh
  refdbctl lock my/project refs/heads/main --try -- git push backup main
  refdbctl lock my/project --shared "nightly build" -- ./read.sh
  refdbctl lock my/project refs/heads/main --wait 30s -- sh -c \
    'refdbctl refs put "$REFDB_PROJECT" "$REFDB_REFS" "$NEW" --old "$OLD" --token "$REFDB_TOKEN"'`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0:
				return errors.New(`give the command after "--": refdbctl lock PROJECT REF... -- COMMAND`)
			case l.leased(cmd) && dash != 1:
				return errors.New(`give only PROJECT before "--": a lease is not on a REF`)
			case !l.leased(cmd) && dash < 2:
				return errors.New(`give PROJECT and at least one REF before "--"`)
			case dash == len(args):
				return errors.New(`give a COMMAND after "--"`)
			}
			return nil
		},
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			l.project, l.refs, l.command = args[0], args[1:dash], args[dash:]
			if err := l.check(cmd); err != nil {
				return err
			}
			return l.run(ctx)
		}),
	}
	flags := cmd.Flags()
	flags.DurationVar(&l.wait, "wait", 0, "wait for the lock, and for the database, for at most this `duration` (default: for the lock, without limit)")
	flags.BoolVar(&l.try, "try", false, "don't wait")
	cmd.MarkFlagsMutuallyExclusive("wait", "try")
	flags.StringVar(&l.shared, "shared", "", "hold the lease of this `name`, shared with others, instead of the lock on refs")
	flags.StringVar(&l.exclusive, "exclusive", "", "hold the lease of this `name` alone, instead of the lock on refs")
	cmd.MarkFlagsMutuallyExclusive("shared", "exclusive")
	flags.DurationVar(&l.options.StaleAfter, "stale-after", refdb.DefaultStaleAfter, "how long the lock stands without being renewed")
	flags.DurationVar(&l.options.Heartbeat, "heartbeat", 0, "how often the lock is renewed (default: 2s, or a fifth of --stale-after)")
	flags.IntVar(&l.conflict, "conflict-exit-code", exit.Locked, "exit status `N` if others hold the lock")
	flags.BoolVar(&l.passDB, "pass-db", false, "pass the database's URL to the command as REFDB_URL, even if it came from --db")
	flags.DurationVar(&l.killAfter, "kill-after", 0, "time from SIGTERM to SIGKILL after a loss (default: 5s, or a sixth of --stale-after)")
	return cmd
}

// lockRun is one run of a command under a lock.
type lockRun struct {
	*app
	project   string
	refs      []string
	shared    string // the name of a lease
	exclusive string // the name of a lease
	request   locking.Request
	command   []string
	wait      time.Duration
	try       bool
	options   refdb.Options
	killAfter time.Duration
	conflict  int
	passDB    bool
	job       jobcontrol.Command // while it runs
}

// leased reports whether the command is to run under a lease.
func (l *lockRun) leased(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("shared") || cmd.Flags().Changed("exclusive")
}

func (l *lockRun) check(cmd *cobra.Command) error {
	for _, ref := range l.refs {
		if err := driver.CheckKey(l.project, ref); err != nil {
			return err
		}
	}
	changed := cmd.Flags().Changed
	switch {
	case changed("shared"):
		l.request = locking.Lease{Project: l.project, Name: l.shared, Mode: lease.Shared, Under: l.enclosing()}
	case changed("exclusive"):
		l.request = locking.Lease{Project: l.project, Name: l.exclusive, Mode: lease.Exclusive, Under: l.enclosing()}
	default:
		l.request = locking.Locks{Project: l.project, Refs: l.refs}
	}
	switch {
	case changed("wait") && l.wait <= 0:
		return exit.Usage(fmt.Sprintf("--wait %s: must be positive; --try does not wait, and without both flags the wait has no limit", l.wait))
	case l.options.StaleAfter <= 0:
		return exit.Usage(fmt.Sprintf("--stale-after %s: it must be positive", l.options.StaleAfter))
	case l.conflict < 0 || l.conflict > 255:
		return exit.Usage(fmt.Sprintf("--conflict-exit-code %d: an exit status is a number from 0 to 255", l.conflict))
	case changed("heartbeat") && l.options.Heartbeat <= 0:
		return exit.Usage(fmt.Sprintf("--heartbeat %s: it must be positive", l.options.Heartbeat))
	}
	margin := l.options.StaleAfter / marginPart
	if !changed("kill-after") {
		l.killAfter = min(maxKillAfter, l.options.StaleAfter/(marginPart+1))
	} else if l.killAfter < 0 || l.killAfter > margin {
		return exit.Usage(fmt.Sprintf("--kill-after %s: at most a fifth of --stale-after (%s), or the command might outlive the lock", l.killAfter, margin))
	}
	// Checked before the lock is taken, so that no process waits for a command that can't run.
	if _, err := exec.LookPath(l.command[0]); err != nil {
		return cannotRun(l.command[0], err)
	}
	return nil
}

// exitStatus returns the end of a command as an error: nil, an *exit.Error or an *exit.Killed.
func exitStatus(e jobcontrol.Exit) error {
	switch {
	case e.Signal != 0:
		return &exit.Killed{Signal: e.Signal}
	case e.Code != exit.OK:
		return &exit.Error{Code: e.Code}
	}
	return nil
}

// cannotRun returns the error for a command that can't be started, with the exit status that a
// shell would return.
func cannotRun(command string, err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	code := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	return exit.With(code, fmt.Sprintf("can't run %q: %s", command, err))
}

func (l *lockRun) run(ctx context.Context) error {
	// From here on a signal ends the wait for the lock, or is forwarded to the command.
	signals := make(chan os.Signal, 16)
	exit.Notify(signals, jobcontrol.ForwardedSignals()...)
	defer signal.Stop(signals)

	waiting, stopWaiting := untilSignal(ctx, signals)
	defer stopWaiting()
	// This runs after the lock is released.
	defer l.job.SignalCaller()
	limited, cancel := l.withWaitLimit(waiting)
	defer cancel()
	db, err := l.openWaiting(limited)
	if err != nil {
		return exit.Interruption(waiting, err)
	}
	lock, err := l.acquire(limited, db)
	stopWaiting()
	if err != nil {
		return exit.Interruption(waiting, errors.Join(err, db.Close()))
	}
	var r runResult
	if r.startErr = waiting.Err(); r.startErr == nil {
		r = l.runUnder(lock, signals)
	}
	var closeErr error
	r.releaseErr, closeErr = l.releaseAndClose(ctx, lock, db)
	return exit.Interruption(waiting, errors.Join(l.resultError(r), closeErr))
}

// untilSignal returns a context that the first of signals ends. After stop, signals no
// longer end the context, and stay in the channel.
func untilSignal(parent context.Context, signals <-chan os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	stopped := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case s := <-signals:
			cancel(&exit.Interrupted{Signal: s})
		case <-parent.Done():
		case <-stopped:
		}
	})
	return ctx, sync.OnceFunc(func() {
		close(stopped)
		watcher.Wait()
	})
}

// runResult is how a command and its lock ended.
type runResult struct {
	exit       error // of the command: see exitStatus
	startErr   error // why the command was not started
	lostErr    error // why the lock was lost while the command ran
	releaseErr error
}

// runUnder runs the command while the lock is held. Signals are forwarded to it.
func (l *lockRun) runUnder(lock locking.Hold, signals <-chan os.Signal) (r runResult) {
	url := ""
	if l.passDB {
		url = l.URL
	}
	env, err := locking.EnvironmentOf(lock, l.Env(locking.UnderVar), url)
	if err != nil {
		return runResult{startErr: err}
	}
	defer env.Remove()
	l.job = jobcontrol.Command{
		Args: l.command,
		Env:  env.Vars,
		In:   l.In, Out: l.Out, Err: l.Err,
		KillAfter: l.killAfter,
		Signals:   signals,
		LockLost:  lock.Done(),
		LockHeld:  func() bool { return lock.Err() == nil },
	}
	if exit, err := l.job.Run(); err != nil {
		r.startErr = cannotRun(l.command[0], err)
	} else {
		r.exit = exitStatus(exit)
	}
	// Read before the release, after which Err is ErrReleased.
	r.lostErr = lock.Err()
	return r
}

// resultError returns the error of the whole run. A lost lock takes precedence.
func (l *lockRun) resultError(r runResult) error {
	switch {
	case r.lostErr != nil && r.startErr == nil:
		return fmt.Errorf("the command was stopped: %w", r.lostErr)
	case r.lostErr != nil || errors.Is(r.releaseErr, refdb.ErrLockLost):
		return errors.Join(r.lostErr, r.releaseErr, r.startErr)
	case r.startErr != nil:
		return errors.Join(r.startErr, r.releaseErr)
	case r.releaseErr != nil && r.exit == nil:
		return fmt.Errorf("the command is done, but its lock was not released and stands until it is stale: %w", r.releaseErr)
	case r.releaseErr != nil:
		l.Note("the lock was not released and stands until it is stale: %s", r.releaseErr)
	}
	return r.exit
}

// releaseAndClose releases the lock and closes the database.
func (l *lockRun) releaseAndClose(ctx context.Context, lock locking.Hold, db *refdb.DB) (releaseErr, closeErr error) {
	releaseErr = l.release(ctx, lock)
	closeErr = db.Close()
	if refdb.ClassOf(releaseErr) == refdb.Retryable {
		// Close has tried once more to release the lock.
		if err := ignoreReleased(lock.Release(ctx)); !errors.Is(err, refdb.ErrClosed) {
			releaseErr = err
		}
	}
	return releaseErr, closeErr
}

// release releases the lock. It retries until the timeout, or until the lock is stale by itself.
func (l *lockRun) release(ctx context.Context, lock locking.Hold) error {
	limited, cancel := l.Limited(context.WithoutCancel(ctx))
	defer cancel()
	stale, cancel := context.WithTimeout(limited, l.options.StaleAfter)
	defer cancel()
	for {
		err := ignoreReleased(lock.Release(stale))
		if refdb.ClassOf(err) != refdb.Retryable || cli.Sleep(stale, retryInterval) != nil {
			return err
		}
	}
}

// ignoreReleased returns nil for refdb.ErrReleased: an earlier attempt has released the lock.
func ignoreReleased(err error) error {
	if errors.Is(err, refdb.ErrReleased) {
		return nil
	}
	return err
}

// retryInterval is the wait between two requests to a database that is down.
const retryInterval = 200 * time.Millisecond

// outage reports whether err means that the database does not respond now.
func outage(err error) bool {
	return !errors.Is(err, refdb.ErrLocked) &&
		(errors.Is(err, refdb.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded))
}

// withWaitLimit returns a context that ends when --wait is over.
func (l *lockRun) withWaitLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, l.wait)
}

// openWaiting opens the database. With --wait it waits for one that is down.
func (l *lockRun) openWaiting(ctx context.Context) (*refdb.DB, error) {
	return retryWhileDown(ctx, l, func() (*refdb.DB, error) { return l.Open(ctx, l.options) })
}

// acquire takes the lock. If it has to wait, it prints a note once.
func (l *lockRun) acquire(ctx context.Context, db *refdb.DB) (locking.Hold, error) {
	lock, err := retryWhileDown(ctx, l, func() (locking.Hold, error) {
		limited, cancel := l.Limited(ctx)
		defer cancel()
		return l.request.Try(limited, db)
	})
	var locked *refdb.LockedError
	if !errors.As(err, &locked) {
		return lock, err
	}
	if err := l.refuseNested(locked); err != nil {
		return nil, l.conflicting(err)
	}
	if l.try {
		return nil, l.conflicting(err)
	}
	l.Note("waiting: %s", locked)
	lock, err = retryWhileDown(ctx, l, func() (locking.Hold, error) { return l.request.Wait(ctx, db) })
	timedOut := err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch refused := errors.As(err, &locked); {
	case timedOut && refused:
		err = l.conflicting(fmt.Errorf("not within --wait %s: %w", l.wait, locked))
	case timedOut && outage(err):
		// In the last known state others held the lock.
		err = l.conflicting(fmt.Errorf("not within --wait %s: %w; since then the database has not answered", l.wait, locked))
	case refused:
		err = l.conflicting(err)
	}
	return lock, err
}

// conflicting sets the exit status of an error about another holder's lock to --conflict-exit-code.
func (l *lockRun) conflicting(err error) error {
	if l.conflict == exit.Locked {
		return err
	}
	return exit.With(l.conflict, err.Error())
}

// retryWhileDown calls do. With --wait it calls do again as long as the database is down, until
// ctx ends.
func retryWhileDown[T any](ctx context.Context, l *lockRun, do func() (T, error)) (T, error) {
	for said := false; ; said = true {
		v, err := do()
		if l.wait == 0 || !outage(err) {
			return v, err
		}
		if !said && ctx.Err() == nil {
			l.Note("waiting: %s", err)
		}
		_ = cli.Sleep(ctx, retryInterval) // ctx may end at the same moment: it is checked below
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			// DeadlineExceeded is not wrapped: it would be reported as --timeout.
			return v, fmt.Errorf("not within --wait %s: %w: %v", l.wait, refdb.ErrUnavailable, err)
		case ctx.Err() != nil:
			return v, fmt.Errorf("%w: %v", ctx.Err(), err)
		}
	}
}

// enclosing returns the names of the locks and leases that this process runs under.
func (l *lockRun) enclosing() []string {
	return strings.FieldsFunc(l.Env(locking.UnderVar), func(c rune) bool { return c == '\n' })
}

// refuseNested fails if this process runs under one of the locks that it would wait for:
// that lock would never be released.
func (l *lockRun) refuseNested(locked *refdb.LockedError) error {
	enclosing := l.enclosing()
	for _, h := range locked.Holders {
		if slices.Contains(enclosing, locking.Name(h.Owner, h.Token)) {
			return fmt.Errorf("this command already runs under the lock on %s %s, and would wait for itself: %w", h.Project, h.Ref, locked)
		}
	}
	return nil
}
