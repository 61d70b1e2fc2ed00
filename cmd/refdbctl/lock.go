package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
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
--try does not wait.

The command finds in its environment REFDB_PROJECT, REFDB_REFS (one to a line), REFDB_OWNER and
REFDB_TOKEN, a number that is larger for each later holder: what the command writes to should refuse
smaller ones than it has seen. "refdbctl refs put --token $REFDB_TOKEN", which takes the owner from
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
it is not found, and then no lock was taken. If the lock was not acquired it is 3, if it was lost 4,
whatever the command's was. If the lock can't be released that is an error: it goes stale by itself.`,
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
	flags.DurationVar(&l.wait, "wait", 0, "wait for the lock for this `duration` at most (default: as long as it takes)")
	flags.BoolVar(&l.try, "try", false, "don't wait")
	cmd.MarkFlagsMutuallyExclusive("wait", "try")
	flags.DurationVar(&l.options.StaleAfter, "stale-after", refdb.DefaultStaleAfter, "how long the lock stands without being renewed")
	flags.DurationVar(&l.options.Heartbeat, "heartbeat", 0, "how often it is renewed (default: 2s, or a fifth of --stale-after)")
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
	case changed("heartbeat") && l.options.Heartbeat <= 0:
		return usage(fmt.Sprintf("--heartbeat %s: it must be positive", l.options.Heartbeat))
	}
	margin := l.options.StaleAfter / marginPart
	if !changed("kill-after") {
		l.killAfter = min(maxKillAfter, l.options.StaleAfter/(marginPart+1))
	} else if l.killAfter < 0 || l.killAfter > margin {
		return usage(fmt.Sprintf("--kill-after %s: at most a fifth of --stale-after (%s), or the command might outlive the lock", l.killAfter, margin))
	}
	l.options.MaxWait = l.wait
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
	err := l.withDB(waiting, l.options, func(db *refdb.DB) error {
		lock, err := l.acquire(waiting, db)
		stopWaiting()
		if err != nil {
			return err
		}
		if waiting.Err() != nil {
			return errors.Join(waiting.Err(), l.release(ctx, lock))
		}
		return l.runUnder(ctx, lock, signals)
	})
	return interruption(waiting, err)
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

func (l *locking) acquire(ctx context.Context, db *refdb.DB) (*refdb.Lock, error) {
	if l.try || isTerminal(l.err) {
		limited, cancel := l.limited(ctx)
		defer cancel()
		lock, err := db.TryLock(limited, l.project, l.refs...)
		if l.try || !errors.Is(err, refdb.ErrLocked) {
			return lock, err
		}
		l.note("waiting: %s", err)
	}
	return db.Lock(ctx, l.project, l.refs...)
}

// runUnder runs the command, and releases the lock. ctx's end is not heeded:
// the signal that caused it is passed on to the command.
func (l *locking) runUnder(ctx context.Context, lock *refdb.Lock, signals <-chan os.Signal) error {
	l.guarded = guarded{
		command: l.command,
		env: append(os.Environ(),
			"REFDB_PROJECT="+lock.Project(),
			"REFDB_REFS="+strings.Join(lock.Refs(), "\n"),
			"REFDB_TOKEN="+strconv.FormatInt(int64(lock.Token()), 10),
			"REFDB_OWNER="+lock.Owner()),
		in: l.in, out: l.out, err: l.err,
		killAfter: l.killAfter,
		signals:   signals,
		lost:      lock.Done(),
		stands:    func() bool { return lock.Err() == nil },
	}
	ended, err := l.guarded.run()
	// Asked before the release, which would end it another way.
	lost := lock.Err()
	released := l.release(ctx, lock)
	switch {
	case lost != nil && err == nil:
		return fmt.Errorf("the command was stopped: %w", lost)
	case lost != nil || errors.Is(released, refdb.ErrLockLost):
		return errors.Join(lost, released, err)
	case err != nil:
		return errors.Join(err, released)
	case released != nil && ended == nil:
		return fmt.Errorf("the command is done, but its lock was not released and stands until it is stale: %w", released)
	case released != nil:
		l.note("the lock was not released and stands until it is stale: %s", released)
	}
	return ended
}

func (l *locking) release(ctx context.Context, lock *refdb.Lock) error {
	limited, cancel := l.limited(context.WithoutCancel(ctx))
	defer cancel()
	err := lock.Release(limited)
	if errors.Is(err, refdb.ErrReleased) {
		return nil
	}
	return err
}
