package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// maxKillAfter is the longest default of --kill-after.
	maxKillAfter = 5 * time.Second
	// marginPart of stale-after is what a holder that can't renew its lock has
	// left, when it is told so, until others may take the lock.
	marginPart = 5

	exitNotExecutable = 126
	exitNotFound      = 127
)

func (a *app) lockCommand() *cobra.Command {
	l := &locking{app: a}
	cmd := &cobra.Command{
		Use:   "lock [flags] PROJECT REF... -- COMMAND [ARG...]",
		Short: "Run a command while holding the lock on refs",
		Long: `Run a command while holding the lock on one or more refs of a project, all or none, and release it
when the command ends. A lock that others hold is waited for, as long as it takes or as --wait says;
--try does not wait. When the wait begins, a line on stderr names the holder. With --wait a database
that is down is waited for, too. A command that already runs under the lock can't take it again: that
is refused, because it would wait for itself.

The command finds in its environment REFDB_PROJECT, REFDB_REFS (one to a line; if they are more than
64 KiB it is not set, and REFDB_REFS_FILE names a file that holds them), REFDB_OWNER and REFDB_TOKEN,
a number that is larger for each later holder: what the command writes to should refuse smaller ones
than it has seen. --pass-db adds REFDB_URL. "refdbctl refs put --token $REFDB_TOKEN", which takes the owner from
REFDB_OWNER, writes a locked ref only while the lock stands.

The command runs in a process group of its own. On a terminal it gets the foreground (unless
standard output is a pipe), so that it can read from it. Ctrl-C reaches it alone; Ctrl-Z stops both,
and the lock goes stale if they are not continued soon. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1
and SIGUSR2 sent to refdbctl are passed on to the group.

If the lock is lost, the group gets SIGTERM, and SIGKILL --kill-after later. A lock that can't be
renewed, because the database can't be reached, is given up a fifth of --stale-after before others
may take it; --kill-after is at most that, so that the command has ended by then. A lock that was
purged, or that refdbctl was frozen for too long to renew, may be another's at once: only a
REFDB_TOKEN that is checked guards against that.

If refdbctl itself is killed with -9, the command is killed at once on Linux, but processes that it
has started are not; on other systems it goes on. The lock stands until it is stale.

Processes that the command leaves running in the background are not waited for, and run without the
lock.

If a signal ends the command, refdbctl dies of it, too, so that a script which runs it ends with
Ctrl-C as if it ran the command alone. A SIGHUP or SIGINT that the caller made refdbctl ignore, as
nohup does, is ignored by it and by the command.

The status is the command's own; 128+N, for a shell, if signal N ended it; 126 if it can't be executed and 127 if
it is not found, and then no lock was taken. If others hold the lock it is 3, or as
--conflict-exit-code says; if it was lost 4, whatever the command's was. A release that does not
reach the database is tried again for --timeout. If the lock can't be released that is an error: it
goes stale by itself.`,
		Example: `  refdbctl lock my/project refs/heads/main -- ./deploy.sh
  refdbctl lock my/project refs/heads/main --try -- git push backup main
  refdbctl lock my/project refs/heads/main --wait 30s -- sh -c \
    'refdbctl refs put "$REFDB_PROJECT" "$REFDB_REFS" "$NEW" --old "$OLD" --token "$REFDB_TOKEN"'`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0:
				return errors.New(`give the command after "--": refdbctl lock PROJECT REF... -- COMMAND`)
			case dash < 2:
				return errors.New(`give PROJECT and at least one REF before "--"`)
			case dash == len(args):
				return errors.New(`give a COMMAND after "--"`)
			}
			return nil
		},
		RunE: a.body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			l.project, l.refs, l.command = args[0], args[1:dash], args[dash:]
			if err := l.check(cmd); err != nil {
				return err
			}
			return l.run(ctx)
		}),
	}
	flags := cmd.Flags()
	flags.DurationVar(&l.wait, "wait", 0, "wait for the lock, and for the database, for this `duration` at most (default: for the lock as long as it takes)")
	flags.BoolVar(&l.try, "try", false, "don't wait")
	cmd.MarkFlagsMutuallyExclusive("wait", "try")
	flags.DurationVar(&l.options.StaleAfter, "stale-after", refdb.DefaultStaleAfter, "how long the lock stands without being renewed")
	flags.DurationVar(&l.options.Heartbeat, "heartbeat", 0, "how often it is renewed (default: 2s, or a fifth of --stale-after)")
	flags.IntVar(&l.conflict, "conflict-exit-code", exitLocked, "the status `N` if others hold the lock")
	flags.BoolVar(&l.passDB, "pass-db", false, "hand the database's URL to the command as REFDB_URL, also if --db named it")
	flags.DurationVar(&l.killAfter, "kill-after", 0, "after a loss, time from SIGTERM to SIGKILL (default: 5s, or a sixth of --stale-after)")
	return cmd
}

// locking is one run of a command under a lock.
type locking struct {
	*app
	project   string
	refs      []string
	command   []string
	wait      time.Duration
	try       bool
	options   refdb.Options
	killAfter time.Duration
	conflict  int
	passDB    bool
	guarded   guarded // the command, while it runs
}

func (l *locking) check(cmd *cobra.Command) error {
	for _, ref := range l.refs {
		if err := refdb.CheckKey(l.project, ref); err != nil {
			return err
		}
	}
	changed := cmd.Flags().Changed
	switch {
	case changed("wait") && l.wait <= 0:
		return usage(fmt.Sprintf("--wait %s: it must be positive; --try does not wait, neither of them waits as long as it takes", l.wait))
	case l.options.StaleAfter <= 0:
		return usage(fmt.Sprintf("--stale-after %s: it must be positive", l.options.StaleAfter))
	case l.conflict < 0 || l.conflict > 255:
		return usage(fmt.Sprintf("--conflict-exit-code %d: an exit status is a number from 0 to 255", l.conflict))
	case changed("heartbeat") && l.options.Heartbeat <= 0:
		return usage(fmt.Sprintf("--heartbeat %s: it must be positive", l.options.Heartbeat))
	}
	margin := l.options.StaleAfter / marginPart
	if !changed("kill-after") {
		l.killAfter = min(maxKillAfter, l.options.StaleAfter/(marginPart+1))
	} else if l.killAfter < 0 || l.killAfter > margin {
		return usage(fmt.Sprintf("--kill-after %s: at most a fifth of --stale-after (%s), or the command might outlive the lock", l.killAfter, margin))
	}
	// Before the lock is taken: it would be in vain.
	if _, err := exec.LookPath(l.command[0]); err != nil {
		return cannotRun(l.command[0], err)
	}
	return nil
}

// cannotRun is the error for a command that can't be started, with a shell's status.
func cannotRun(command string, err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	code := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	return &status{code, fmt.Sprintf("can't run %q: %s", command, err)}
}

func (l *locking) run(ctx context.Context) error {
	// From here on signals are the command's, or end the wait for the lock.
	signals := make(chan os.Signal, 16)
	notify(signals, passedOn...)
	defer signal.Stop(signals)

	waiting, stopWaiting := untilSignal(ctx, signals)
	defer stopWaiting()
	// Last of all, when the lock is released.
	defer l.guarded.tellJob()
	within, cancel := l.within(waiting)
	defer cancel()
	db, err := l.openWithin(within)
	if err != nil {
		return interruption(waiting, err)
	}
	lock, err := l.acquire(within, db)
	stopWaiting()
	if err != nil {
		return interruption(waiting, errors.Join(err, db.Close()))
	}
	var w work
	if w.err = waiting.Err(); w.err == nil {
		w = l.runUnder(lock, signals)
	}
	w.released = l.release(ctx, lock)
	closed := db.Close()
	if refdb.ClassOf(w.released) == refdb.Retryable {
		// Close gave it a last chance.
		w.released = told(lock.Release(ctx))
	}
	return interruption(waiting, errors.Join(l.judge(w), closed))
}

// untilSignal returns a context that the first of signals ends. Stopping it
// leaves it as it is, and later signals in their channel.
func untilSignal(parent context.Context, signals <-chan os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	stopped := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case s := <-signals:
			cancel(&interrupted{signal: s})
		case <-parent.Done():
		case <-stopped:
		}
	})
	return ctx, sync.OnceFunc(func() {
		close(stopped)
		watcher.Wait()
	})
}

// work is what became of a command and its lock.
type work struct {
	ended    error // how the command did: see guarded.run
	err      error // why it was not started
	lost     error
	released error
}

// runUnder runs the command. The signal that would have ended the wait is
// passed on to it.
func (l *locking) runUnder(lock *refdb.Lock, signals <-chan os.Signal) (w work) {
	env, err := l.environment(lock)
	if err != nil {
		return work{err: err}
	}
	defer env.remove()
	l.guarded = guarded{
		command: l.command,
		env:     env.vars,
		in:      l.in, out: l.out, err: l.err,
		killAfter: l.killAfter,
		signals:   signals,
		lost:      lock.Done(),
		stands:    func() bool { return lock.Err() == nil },
	}
	w.ended, w.err = l.guarded.run()
	// Asked before the release, which would end it another way.
	w.lost = lock.Err()
	return w
}

// judge makes one error of it all.
func (l *locking) judge(w work) error {
	switch {
	case w.lost != nil && w.err == nil:
		return fmt.Errorf("the command was stopped: %w", w.lost)
	case w.lost != nil || errors.Is(w.released, refdb.ErrLockLost):
		return errors.Join(w.lost, w.released, w.err)
	case w.err != nil:
		return errors.Join(w.err, w.released)
	case w.released != nil && w.ended == nil:
		return fmt.Errorf("the command is done, but its lock was not released and stands until it is stale: %w", w.released)
	case w.released != nil:
		l.note("the lock was not released and stands until it is stale: %s", w.released)
	}
	return w.ended
}

// release tries for as long as it may take, or until the lock is stale by itself.
func (l *locking) release(ctx context.Context, lock *refdb.Lock) error {
	limited, cancel := l.limited(context.WithoutCancel(ctx))
	defer cancel()
	stale, cancel := context.WithTimeout(limited, l.options.StaleAfter)
	defer cancel()
	for {
		err := told(lock.Release(stale))
		if refdb.ClassOf(err) != refdb.Retryable || pause(stale, databasePause) != nil {
			return err
		}
	}
}

// told is the error of a release that nobody has done before.
func told(err error) error {
	if errors.Is(err, refdb.ErrReleased) {
		return nil
	}
	return err
}
