package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.metrics.Counter0;
import com.google.gerrit.metrics.Description;
import com.google.gerrit.metrics.MetricMaker;
import com.google.inject.Inject;

/** The progress of following, in Gerrit's registry of metrics. */
final class MoveMetrics implements Progress {
  private final MetricMaker metrics;
  private final Counter0 applied;
  private final Counter0 failed;
  private volatile long reset; // in seconds since 1970; 0: not since the start

  @Inject
  MoveMetrics(MetricMaker metrics) {
    this.metrics = metrics;
    applied = metrics.newCounter("refdb/moves/applied", new Description("Index entries and caches that were brought up to date").setRate());
    failed = metrics.newCounter("refdb/moves/failed", new Description("Tries to do so that failed").setRate());
  }

  void register(Follower follower, Pending pending) {
    metrics.newCallbackMetric(
        "refdb/moves/behind",
        Double.class,
        new Description("Since when the oldest move is known that indexes or caches lack, or nothing is known of moves")
            .setGauge()
            .setUnit(Description.Units.SECONDS),
        () -> follower.behind().toMillis() / 1000.0);
    metrics.newCallbackMetric(
        "refdb/moves/left_behind",
        Integer.class,
        new Description("Index entries that can't be brought up to date: the next start compares everything").setGauge(),
        () -> pending.leftBehind());
    metrics.newCallbackMetric(
        "refdb/moves/last_reset",
        Long.class,
        new Description("When everything had to be compared last").setGauge().setUnit(Description.Units.SECONDS),
        () -> reset);
  }

  @Override
  public void applied() {
    applied.increment();
  }

  @Override
  public void failed() {
    failed.increment();
  }

  @Override
  public void reset() {
    reset = System.currentTimeMillis() / 1000;
  }
}
