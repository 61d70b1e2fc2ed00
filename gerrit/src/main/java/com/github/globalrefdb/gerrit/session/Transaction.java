package com.github.globalrefdb.gerrit.session;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import com.github.globalrefdb.gerrit.session.RefusedException.Kind;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongSupplier;

/**
 * A transaction from its announcement on. One compare-and-set of its state decides between the daemon's answer and
 * giving up. A transaction that was given up or refused never moves refs; a retry is another transaction.
 *
 * <p>An interrupt ends no wait here; it is restored when the method returns.
 */
public final class Transaction {
  /** The kind of a transaction. */
  enum Subject {
    /** Moves refs. It is listed when a session begins. */
    MOVES,
    /** Creates a repository. It is never listed, and is reported until the daemon answers the report. */
    CREATION,
    /** Reports a deleted repository. The answer ends it. */
    DELETION
  }

  private sealed interface State permits Waiting, Taken, Denied {}

  private record Waiting() implements State {}

  /** The OK was taken: the refs may move until the report. */
  private record Taken() implements State {}

  private record Denied(RefusedException why) implements State {}

  /** How long an OK may be used. When a project's rules change, OKs under the old rules must expire soon. */
  static final Duration OK_LASTS = Duration.ofSeconds(10);

  private static final State WAITING = new Waiting();
  private static final State TAKEN = new Taken();

  private final LongSupplier clock;
  private final Subject subject;
  private final String id;
  private final String repository;
  private final List<Move> moves;
  private final Duration limit;
  private final AtomicReference<State> state = new AtomicReference<>(WAITING);
  private final CountDownLatch decided = new CountDownLatch(1);
  private final CountDownLatch ended = new CountDownLatch(1);
  private volatile long deadline;
  private volatile long unanswered; // the last time at which there was no answer yet
  private volatile Map<String, String> settled = Map.of();
  private volatile boolean finished;

  /**
   * @param clock like {@link System#nanoTime}
   */
  Transaction(LongSupplier clock, Subject subject, String id, String repository, List<Move> moves, Duration limit) {
    this.clock = clock;
    this.subject = subject;
    this.id = id;
    this.repository = repository;
    this.moves = List.copyOf(moves);
    this.limit = limit;
    extend();
  }

  Subject subject() {
    return subject;
  }

  String id() {
    return id;
  }

  String repository() {
    return repository;
  }

  List<Move> moves() {
    return moves;
  }

  Duration limit() {
    return limit;
  }

  /** The daemon needs more time: its limit starts again now. */
  void extend() {
    long now = clock.getAsLong();
    unanswered = now;
    deadline = now + limit.toNanos();
  }

  /** Takes the OK, unless the transaction was given up. An OK that may have expired does not count. */
  boolean take() {
    if (isOver()) {
      deny(tooOld());
      return false;
    }
    return decide(TAKEN);
  }

  private boolean isOver() {
    return clock.getAsLong() - unanswered > OK_LASTS.toNanos();
  }

  private static RefusedException tooOld() {
    String text = "the site daemon's answer was too old when it could be used: nothing was changed, try again";
    return new RefusedException(Kind.FINAL, "timeout", List.of(text));
  }

  /** Refuses or gives up the transaction, unless the OK was taken. */
  boolean deny(RefusedException why) {
    return decide(new Denied(why));
  }

  private boolean decide(State decision) {
    if (!state.compareAndSet(WAITING, decision)) {
      return false;
    }
    decided.countDown();
    return true;
  }

  boolean isTaken() {
    return state.get() == TAKEN;
  }

  /** The thread has finished moving refs. */
  void finish() {
    finished = true;
  }

  boolean isFinished() {
    return finished;
  }

  /**
   * Waits for the answer, and gives up when the limit is over.
   *
   * @throws RefusedException if nothing may move. An OK that was taken nevertheless came too late for this thread
   */
  void awaitOk() throws RefusedException {
    while (!await(decided, deadline)) {
      if (deadline - clock.getAsLong() <= 0) { // it may have been extended meanwhile
        String text = "the site daemon did not answer within " + limit.toMillis() + " ms: nothing was changed, try again later";
        deny(new RefusedException(Kind.FINAL, "timeout", List.of(text)));
      }
    }
    if (state.get() instanceof Denied denied) {
      throw denied.why();
    }
    if (isOver()) {
      throw tooOld();
    }
  }

  /**
   * The daemon has settled the transaction according to the repository. {@code values} are by ref; empty if the daemon
   * no longer knew the transaction.
   */
  void settle(Map<String, String> values) {
    settled = Map.copyOf(values);
    ended.countDown();
  }

  /** The settled values of the refs; empty if the daemon does not answer in time. */
  Optional<Map<String, String>> awaitSettled(Duration patience) {
    await(ended, clock.getAsLong() + patience.toNanos());
    Map<String, String> values = settled;
    return values.isEmpty() ? Optional.empty() : Optional.of(values);
  }

  private boolean await(CountDownLatch latch, long deadline) {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return latch.await(deadline - clock.getAsLong(), NANOSECONDS);
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
