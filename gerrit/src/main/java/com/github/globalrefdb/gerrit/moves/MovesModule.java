package com.github.globalrefdb.gerrit.moves;

import com.google.inject.AbstractModule;
import com.google.inject.Scopes;

/** What there is once in a server. Bound here it is made by the server's injector, which knows all that it needs. */
public final class MovesModule extends AbstractModule {
  @Override
  protected void configure() {
    bind(Following.class).in(Scopes.SINGLETON);
    bind(ComparedCount.class).in(Scopes.SINGLETON);
    bind(MoveMetrics.class).in(Scopes.SINGLETON);
  }
}
