package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Identity;
import com.github.globalrefdb.gerrit.session.Welcome;
import com.google.common.flogger.FluentLogger;
import com.google.gerrit.common.Nullable;
import com.google.gerrit.extensions.events.LifecycleListener;
import com.google.gerrit.server.config.GerritInstanceId;
import com.google.gerrit.server.config.GerritServerId;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.inject.Inject;
import com.google.inject.Injector;
import com.google.inject.Key;
import com.google.inject.ProvisionException;
import java.io.IOException;
import java.time.Duration;
import java.util.Optional;

/** Permits the start of a server only if it is guarded by the daemon of its site, under its own identity. */
final class StartCheck implements LifecycleListener {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  /** After a boot, the daemon and Gerrit start at the same time. */
  private static final Duration PATIENCE = Duration.ofSeconds(30);

  private final GitRepositoryManager manager;
  private final Injector injector;
  private final String instance;
  private final String server;

  @Inject
  StartCheck(GitRepositoryManager manager, Injector injector, @Nullable @GerritInstanceId String instance, @GerritServerId String server) {
    this.manager = manager;
    this.injector = injector;
    this.instance = instance;
    this.server = server;
  }

  @Override
  public void start() {
    if (!(manager instanceof GuardedRepositoryManager)) {
      throw new ProvisionException(
          "refdb: the repositories are managed by "
              + manager.getClass().getName()
              + ", not by the guard: set gerrit.installDbModule = "
              + DbModule.class.getName()
              + ", and no other module that manages repositories");
    }
    Settings settings = injector.getInstance(Key.get(Settings.class));
    Identity identity = settings.server(Optional.ofNullable(instance), server);
    try {
      for (String name : settings.missingFsync()) {
        throw new ProvisionException(
            "refdb: what JGit writes may be lost in a power cut: git config -f " + settings.jgitConfig() + " core." + name + " true");
      }
      Welcome welcome = injector.getInstance(DaemonSessions.class).sessions().begin(identity, PATIENCE);
      logger.atInfo().log("refdb: guarded by the daemon of the site %s", welcome.site());
    } catch (IOException e) {
      throw new ProvisionException("refdb: Gerrit does not start without the guard: " + e.getMessage(), e);
    }
  }

  @Override
  public void stop() {}
}
