package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.RefusedException;
import java.util.LinkedHashSet;
import java.util.Set;

/** The distinct reasons of refusals, in order. Their number is bounded. */
final class RefusalLog {
  private static final int LIMIT = 20;

  private final Set<String> lines = new LinkedHashSet<>();

  synchronized void add(RefusedException e) {
    e.lines().stream().limit(Math.max(0, LIMIT - lines.size())).forEach(lines::add);
  }

  synchronized Set<String> lines() {
    return new LinkedHashSet<>(lines);
  }
}
