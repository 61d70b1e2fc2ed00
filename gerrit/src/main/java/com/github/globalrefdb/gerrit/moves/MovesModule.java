package com.github.globalrefdb.gerrit.moves;

import com.google.inject.AbstractModule;
import com.google.inject.Scopes;

/** Binds the singletons of a server. They are created by the server's injector, which has all their dependencies. */
public final class MovesModule extends AbstractModule {
  @Override
  protected void configure() {
    bind(Following.class).in(Scopes.SINGLETON);
    bind(ComparedCount.class).in(Scopes.SINGLETON);
    bind(MoveMetrics.class).in(Scopes.SINGLETON);
  }
}
