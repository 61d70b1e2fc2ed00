package com.github.globalrefdb.gerrit;

import com.google.gerrit.extensions.events.ProjectDeletedListener;
import com.google.gerrit.extensions.registration.DynamicSet;
import com.google.gerrit.lifecycle.LifecycleModule;
import com.google.gerrit.server.ExceptionHook;
import com.google.gerrit.server.git.ReceivePackInitializer;

/** {@code gerrit.installModule}: for the server alone. */
public final class SysModule extends LifecycleModule {
  @Override
  protected void configure() {
    listener().to(StartCheck.class);
    DynamicSet.bind(binder(), ExceptionHook.class).to(RestRefusals.class);
    DynamicSet.bind(binder(), ProjectDeletedListener.class).to(ProjectDeletions.class);
    DynamicSet.bind(binder(), ReceivePackInitializer.class).to(PushRefusals.class);
  }
}
