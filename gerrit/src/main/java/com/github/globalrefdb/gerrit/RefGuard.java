package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.github.globalrefdb.gerrit.session.SessionClient;
import com.github.globalrefdb.gerrit.session.Transaction;
import com.google.common.flogger.FluentLogger;
import com.google.inject.Inject;
import com.google.inject.Singleton;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.eclipse.jgit.lib.PersonIdent;

/** The steps of a transaction: announce it, let JGit move the refs, read them, report. */
@Singleton
final class RefGuard {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  /** Gerrit's cache of merges, which each site builds for itself. Projects' rules exclude it, too. */
  private static final String NOT_ANNOUNCED = "refs/cache-automerge/";

  private final SessionClient sessions;
  private final RecentRefusals recent;
  private volatile TransactionObserver observer = (result, untilAnswer) -> {};

  @Inject
  RefGuard(DaemonSessions daemon, RecentRefusals recent) {
    this(daemon.sessions(), recent);
  }

  RefGuard(SessionClient sessions, RecentRefusals recent) {
    this.sessions = sessions;
    this.recent = recent;
  }

  /** Only a server has metrics, which are created later than the guard. */
  void setObserver(TransactionObserver observer) {
    this.observer = observer;
  }

  static boolean isAnnounced(String ref) {
    return !ref.startsWith(NOT_ANNOUNCED);
  }

  /** The operation of JGit that moves refs. */
  interface Attempt {
    void run() throws IOException;
  }

  /**
   * Runs JGit's move of refs if the daemon permits it, and determines the outcome. It does not throw JGit's exceptions.
   *
   * @param moves with the old values that JGit will compare under its locks
   * @throws RefusedException nothing was moved
   */
  Outcome move(GuardedRefDatabase refs, PersonIdent by, List<Move> moves, Attempt attempt) throws IOException {
    Transaction transaction;
    long began = System.nanoTime();
    try {
      transaction = sessions.announce(refs.repository().getDirectory().toPath().toRealPath(), name(by), moves);
    } catch (RefusedException e) {
      observer.answered(e.reason(), Duration.ofNanos(System.nanoTime() - began));
      refused(refs, moves, e);
      throw e;
    }
    observer.answered(TransactionObserver.OK, Duration.ofNanos(System.nanoTime() - began));
    Throwable thrown = null;
    Map<String, String> values = Map.of();
    try {
      attempt.run();
    } catch (Throwable e) {
      thrown = e;
    } finally {
      // An interrupt of the thread must not make our own steps fail.
      boolean interrupted = Thread.interrupted();
      Map<String, String> read = read(refs, moves);
      values = new HashMap<>(sessions.report(transaction).orElse(Map.of()));
      values.putAll(read);
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
    if (thrown instanceof Error error) {
      throw error;
    }
    return new Outcome(values, Optional.ofNullable((Exception) thrown));
  }

  /**
   * Runs JGit's creation of a repository if the daemon permits it. The creation ends when the returned object is
   * closed.
   *
   * @param directory the real path that it will have
   * @throws RefusedException nothing was made
   */
  Creation create(Path directory) throws IOException {
    try {
      return new Creation(sessions, sessions.create(directory), directory);
    } catch (RefusedException e) {
      logger.atInfo().log("refdb: a project may not be created (%s): %s", e.reason(), e.getMessage());
      throw e;
    }
  }

  SessionClient sessions() {
    return sessions;
  }

  /**
   * The values of the refs. Before the report no other process moves them. The daemon's answer may be from a later
   * time, if the session broke meanwhile; it counts only for refs that can't be read here.
   */
  private static Map<String, String> read(GuardedRefDatabase refs, List<Move> moves) {
    try {
      return refs.reader().values(moves.stream().map(Move::ref).toList());
    } catch (Throwable e) { // the report follows in any case
      logger.atWarning().withCause(e).log("refdb: refs can't be read after they were moved");
      return Map.of();
    }
  }

  private void refused(GuardedRefDatabase refs, List<Move> moves, RefusedException e) {
    logger.atInfo().log("refdb: refused (%s): %s", e.reason(), e.getMessage());
    refs.repository().refusals().add(e);
    recent.add(moves, e);
    try {
      refs.reader().refresh(moves.get(0).ref()); // a retry reads the present value
    } catch (IOException | RuntimeException suppressed) {
      e.addSuppressed(suppressed);
    }
  }

  private static Optional<String> name(PersonIdent by) {
    return by == null ? Optional.empty() : Optional.of(by.getName() + " <" + by.getEmailAddress() + ">");
  }
}
