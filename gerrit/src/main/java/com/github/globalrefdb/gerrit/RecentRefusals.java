package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.google.inject.Singleton;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Refusals of the last minute, for callers that can't get the reason from an exception or a repository. */
@Singleton
final class RecentRefusals {
  private static final Duration KEPT = Duration.ofMinutes(1);
  private static final int LIMIT = 200;
  private static final String SEQUENCES = "refs/sequences/";

  private final Deque<Entry> entries = new ArrayDeque<>();

  private record Entry(long time, Thread thread, Set<String> refs, List<String> lines) {}

  synchronized void add(List<Move> moves, RefusedException e) {
    Set<String> refs = new LinkedHashSet<>();
    moves.forEach(move -> refs.add(move.ref()));
    entries.addLast(new Entry(System.nanoTime(), Thread.currentThread(), refs, e.lines()));
    trim();
  }

  /** The reason why this thread could not move one of these refs. */
  synchronized Set<String> ofThisThread(Collection<String> refs) {
    trim();
    Set<String> lines = new LinkedHashSet<>();
    for (Entry entry : entries) {
      if (entry.thread() == Thread.currentThread() && refs.stream().anyMatch(entry.refs()::contains)) {
        lines.addAll(entry.lines());
      }
    }
    return lines;
  }

  /** The reason why a thread got no number since {@code time}: numbers are reserved for many users at a time. */
  synchronized Set<String> ofSequencesSince(long time) {
    trim();
    Set<String> lines = new LinkedHashSet<>();
    for (Entry entry : entries) {
      if (entry.time() - time >= 0 && entry.refs().stream().anyMatch(ref -> ref.startsWith(SEQUENCES))) {
        lines.addAll(entry.lines());
      }
    }
    return lines;
  }

  private void trim() {
    long oldest = System.nanoTime() - KEPT.toNanos();
    while (!entries.isEmpty() && (entries.size() > LIMIT || entries.peekFirst().time() - oldest < 0)) {
      entries.removeFirst();
    }
  }
}
