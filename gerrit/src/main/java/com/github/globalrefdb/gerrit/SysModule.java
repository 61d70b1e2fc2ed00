package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.moves.FollowSettings;
import com.github.globalrefdb.gerrit.moves.Following;
import com.github.globalrefdb.gerrit.moves.MovesModule;
import com.google.gerrit.extensions.events.ProjectDeletedListener;
import com.google.gerrit.extensions.registration.DynamicSet;
import com.google.gerrit.lifecycle.LifecycleModule;
import com.google.gerrit.server.ExceptionHook;
import com.google.gerrit.server.git.ReceivePackInitializer;
import com.google.inject.Provides;

/** {@code gerrit.installModule}: for the server alone. */
public final class SysModule extends LifecycleModule {
  @Override
  protected void configure() {
    listener().to(StartCheck.class);
    listener().to(GuardMetrics.class);
    listener().to(Following.class);
    install(new MovesModule());
    DynamicSet.bind(binder(), ExceptionHook.class).to(RestRefusals.class);
    DynamicSet.bind(binder(), ProjectDeletedListener.class).to(ProjectDeletions.class);
    DynamicSet.bind(binder(), ReceivePackInitializer.class).to(PushRefusals.class);
  }

  @Provides
  FollowSettings followSettings(Settings settings, DaemonSessions daemon) {
    return new FollowSettings(settings.socket(), daemon.sessions().guard(), settings.root());
  }
}
