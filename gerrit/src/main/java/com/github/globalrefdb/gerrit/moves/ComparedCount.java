package com.github.globalrefdb.gerrit.moves;

import java.util.concurrent.atomic.AtomicInteger;

/** How many changes, accounts, groups and projects were compared since the last reset, and how many were stale. */
final class ComparedCount {
  private final AtomicInteger compared = new AtomicInteger();
  private final AtomicInteger stale = new AtomicInteger();

  void add(boolean isStale) {
    compared.incrementAndGet();
    if (isStale) {
      stale.incrementAndGet();
    }
  }

  void clear() {
    compared.set(0);
    stale.set(0);
  }

  int compared() {
    return compared.get();
  }

  int stale() {
    return stale.get();
  }

  @Override
  public String toString() {
    return compared + " compared, " + stale + " of them were stale";
  }
}
