package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.Urgency;
import com.github.globalrefdb.gerrit.moves.Pending.Task;
import com.google.common.flogger.FluentLogger;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * The threads that execute the pending actions. One thread only executes actions that may revoke access; another one
 * executes those and actions on changes. Neither waits for a comparison.
 */
final class Workers {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();
  private static final List<Urgency> LEAST = List.of(Urgency.ACCESS, Urgency.CHANGE, Urgency.COMPARISON, Urgency.COMPARISON);
  private static final long STOP_WITHIN_MS = 10_000;

  private final Pending pending;
  private final ActionRunner runner;
  private final Progress progress;
  private final List<Thread> threads = new ArrayList<>();

  Workers(Pending pending, ActionRunner runner, Progress progress) {
    this.pending = pending;
    this.runner = runner;
    this.progress = progress;
  }

  void start() {
    for (Urgency least : LEAST) {
      Thread thread = new Thread(() -> work(least), "refdb-moves-" + threads.size());
      thread.setDaemon(true);
      threads.add(thread);
      thread.start();
    }
  }

  private void work(Urgency least) {
    try {
      for (Optional<Task> task = pending.take(least); task.isPresent(); task = pending.take(least)) {
        run(task.get());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void run(Task task) {
    try {
      pending.done(task, runner.run(task.action()));
      progress.applied();
    } catch (Throwable e) { // an Error of one action must not end the thread
      pending.failed(task);
      progress.failed();
      logger.atWarning().withCause(e).log(
          "refdb: indexes and caches can't follow %s, which failed %d times: it is tried again%s",
          task.action(), task.failures(), task.isLeftBehind() ? ", and the next start compares everything" : "");
    }
  }

  /** Stops the threads after their present actions. Returns whether they have ended. */
  boolean stop() throws InterruptedException {
    pending.close();
    long deadline = System.nanoTime() + STOP_WITHIN_MS * 1_000_000;
    boolean ended = true;
    for (Thread thread : threads) {
      thread.join(Math.max(1, (deadline - System.nanoTime()) / 1_000_000));
      ended &= !thread.isAlive();
    }
    return ended;
  }
}
