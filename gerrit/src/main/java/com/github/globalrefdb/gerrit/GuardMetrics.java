package com.github.globalrefdb.gerrit;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import com.google.gerrit.extensions.events.LifecycleListener;
import com.google.gerrit.metrics.Counter1;
import com.google.gerrit.metrics.Description;
import com.google.gerrit.metrics.Field;
import com.google.gerrit.metrics.MetricMaker;
import com.google.gerrit.metrics.Timer0;
import com.google.inject.Inject;
import com.google.inject.Injector;

/** Metrics of the guard's transactions, in Gerrit's registry. */
final class GuardMetrics implements LifecycleListener {
  private final MetricMaker metrics;
  private final Injector injector;

  /**
   * @param injector provides the guard after the start was checked
   */
  @Inject
  GuardMetrics(MetricMaker metrics, Injector injector) {
    this.metrics = metrics;
    this.injector = injector;
  }

  @Override
  public void start() {
    Field<String> result = Field.ofString("result", Field.ignoreMetadata()).description("ok, or why it was refused").build();
    Counter1<String> transactions =
        metrics.newCounter("refdb/transactions", new Description("Transactions that were announced to the site daemon").setRate(), result);
    Timer0 untilOk =
        metrics.newTimer(
            "refdb/until_ok",
            new Description("From the announcement to the daemon's OK").setCumulative().setUnit(Description.Units.MILLISECONDS));
    DaemonSessions daemon = injector.getInstance(DaemonSessions.class);
    metrics.newCallbackMetric(
        "refdb/session",
        Integer.class,
        new Description("Whether there is a session with the site daemon: 1 or 0").setGauge(),
        () -> daemon.sessions().hasSession() ? 1 : 0);
    injector
        .getInstance(RefGuard.class)
        .setObserver(
            (word, untilAnswer) -> {
              transactions.increment(word);
              if (word.equals(TransactionObserver.OK)) {
                untilOk.record(untilAnswer.toNanos(), NANOSECONDS);
              }
            });
  }

  @Override
  public void stop() {}
}
