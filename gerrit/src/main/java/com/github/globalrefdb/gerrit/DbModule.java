package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.moves.ProjectPresence;
import com.github.globalrefdb.gerrit.moves.SavedPlace;
import com.google.gerrit.lifecycle.LifecycleModule;
import com.google.gerrit.server.ModuleImpl;
import com.google.gerrit.server.config.AllProjectsNameProvider;
import com.google.gerrit.server.config.RepositoryConfig;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.git.GitRepositoryManagerModule;
import com.google.gerrit.server.git.LocalDiskRepositoryManager;
import com.google.gerrit.server.git.MultiBaseLocalDiskRepositoryManager;
import com.google.inject.Inject;
import com.google.inject.Provides;
import com.google.inject.Scopes;
import com.google.inject.Singleton;

/**
 * {@code gerrit.installDbModule}: replaces Gerrit's own module of repositories, in the server and in the programs that
 * run without it (init, reindex).
 */
@ModuleImpl(name = GitRepositoryManagerModule.MANAGER_MODULE)
public final class DbModule extends LifecycleModule {
  private final RepositoryConfig repositories;

  @Inject
  DbModule(RepositoryConfig repositories) {
    this.repositories = repositories;
  }

  @Override
  protected void configure() {
    Class<? extends LocalDiskRepositoryManager> unguarded =
        repositories.getAllBasePaths().isEmpty() ? LocalDiskRepositoryManager.class : MultiBaseLocalDiskRepositoryManager.class;
    listener().to(LocalDiskRepositoryManager.Lifecycle.class);
    bind(GitRepositoryManager.class).annotatedWith(Unguarded.class).to(unguarded);
    bind(GitRepositoryManager.class).to(GuardedRepositoryManager.class).in(Scopes.SINGLETON);
    bind(DaemonSessions.class).in(Scopes.SINGLETON);
    bind(RecentRefusals.class).in(Scopes.SINGLETON); // the server's module uses the same instance
    listener().to(DaemonSessions.class);
    bind(SavedPlace.class).in(Scopes.SINGLETON);
    listener().to(SavedPlace.class);
  }

  @Provides
  @Singleton
  ProjectPresence projectPresence(@Unguarded GitRepositoryManager unguarded, AllProjectsNameProvider allProjects) {
    return new ProjectPresence(((LocalDiskRepositoryManager) unguarded)::getBasePath, allProjects.get());
  }
}
