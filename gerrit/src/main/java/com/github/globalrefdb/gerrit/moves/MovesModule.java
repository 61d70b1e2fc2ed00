package com.github.globalrefdb.gerrit.moves;

import com.google.inject.AbstractModule;
import com.google.inject.Scopes;

/** What there is once in a server. */
public final class MovesModule extends AbstractModule {
  @Override
  protected void configure() {
    bind(ComparedCount.class).in(Scopes.SINGLETON);
    bind(MoveMetrics.class).in(Scopes.SINGLETON);
  }
}
