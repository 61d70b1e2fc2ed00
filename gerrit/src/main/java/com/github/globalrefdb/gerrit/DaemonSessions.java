package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.SessionClient;
import com.google.gerrit.extensions.events.LifecycleListener;
import com.google.inject.Inject;
import java.time.Duration;

/** This process's sessions with the site's daemon. */
final class DaemonSessions implements LifecycleListener {
  /** A daemon that is being restarted answers again within this time. */
  private static final Duration REPORT_PATIENCE = Duration.ofSeconds(20);

  private final SessionClient sessions;

  @Inject
  DaemonSessions(Settings settings) {
    sessions = new SessionClient(settings.socket(), settings::offline, REPORT_PATIENCE);
  }

  SessionClient sessions() {
    return sessions;
  }

  /** A server begins its session in {@link StartCheck}, other programs when they first move a ref. */
  @Override
  public void start() {}

  @Override
  public void stop() {
    sessions.close();
  }
}
