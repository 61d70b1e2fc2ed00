package com.github.globalrefdb.gerrit;

import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.inject.Inject;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.util.NavigableSet;
import org.eclipse.jgit.lib.Repository;

/** Gerrit's repositories, guarded. A new one is made unguarded: it has no refs. */
final class GuardedRepositoryManager implements GitRepositoryManager {
  private final GitRepositoryManager unguarded;
  private final RefGuard guard;

  @Inject
  GuardedRepositoryManager(@Unguarded GitRepositoryManager unguarded, RefGuard guard) {
    this.unguarded = unguarded;
    this.guard = guard;
  }

  @Override
  public Repository openRepository(Project.NameKey name) throws IOException {
    return GuardedRepository.wrap(unguarded.openRepository(name), guard);
  }

  @Override
  public Repository createRepository(Project.NameKey name) throws IOException {
    return GuardedRepository.wrap(unguarded.createRepository(name), guard);
  }

  @Override
  public Status getRepositoryStatus(Project.NameKey name) {
    return unguarded.getRepositoryStatus(name);
  }

  @Override
  public NavigableSet<Project.NameKey> list() {
    return unguarded.list();
  }

  /** JGit would pack refs and prune objects that the other sites build on: {@code refdbctl site maintain} does both. */
  @Override
  public Boolean canPerformGC() {
    return false;
  }

  /** Part of the interface from Gerrit 3.12 on. */
  public void repositoryDeleted(Project.NameKey name) {
    try {
      GitRepositoryManager.class.getMethod("repositoryDeleted", Project.NameKey.class).invoke(unguarded, name);
    } catch (InvocationTargetException e) {
      throw new IllegalStateException(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
