package com.github.globalrefdb.gerrit;

import com.google.gerrit.server.git.DelegateRefDatabase;
import java.io.IOException;
import org.eclipse.jgit.lib.BatchRefUpdate;
import org.eclipse.jgit.lib.RefRename;
import org.eclipse.jgit.lib.RefUpdate;
import org.eclipse.jgit.lib.Repository;

/** A ref database that reads refs directly, and moves them only through {@link RefGuard}. */
final class GuardedRefDatabase extends DelegateRefDatabase {
  private final GuardedRepository repository;
  private final RefGuard guard;

  GuardedRefDatabase(GuardedRepository repository, Repository unguarded, RefGuard guard) {
    super(unguarded);
    this.repository = repository;
    this.guard = guard;
  }

  GuardedRepository repository() {
    return repository;
  }

  /** The refs below the guard. */
  RefReader reader() {
    return new RefReader(getDelegate().getRefDatabase());
  }

  RefGuard guard() {
    return guard;
  }

  @Override
  public RefUpdate newUpdate(String name, boolean detach) throws IOException {
    return new GuardedRefUpdate(this, super.newUpdate(name, detach));
  }

  @Override
  public RefRename newRename(String from, String to) throws IOException {
    return new GuardedRefRename(this, super.newRename(from, to), super.newUpdate(from, false), super.newUpdate(to, false));
  }

  @Override
  public BatchRefUpdate newBatchUpdate() {
    return new GuardedBatchRefUpdate(this, super.newBatchUpdate());
  }
}
