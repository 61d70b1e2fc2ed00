package com.github.globalrefdb.gerrit;

import com.google.gerrit.server.git.DelegateRepository;
import java.io.IOException;
import java.util.Optional;
import org.eclipse.jgit.lib.ProgressMonitor;
import org.eclipse.jgit.lib.RefDatabase;
import org.eclipse.jgit.lib.RefRename;
import org.eclipse.jgit.lib.RefUpdate;
import org.eclipse.jgit.lib.Repository;

/** A repository whose refs are moved only through {@link RefGuard}. */
final class GuardedRepository extends DelegateRepository {
  private final GuardedRefDatabase refs;
  private final RefusalLog refusals = new RefusalLog();

  private GuardedRepository(Repository unguarded, RefGuard guard) {
    super(unguarded);
    refs = new GuardedRefDatabase(this, unguarded, guard);
  }

  static Repository wrap(Repository unguarded, RefGuard guard) {
    return new Handle(new GuardedRepository(unguarded, guard));
  }

  /** A repository that has just been created. The creation ends when it is closed. */
  static Repository wrapNew(Repository unguarded, RefGuard guard, Creation creation) {
    return new NewHandle(new GuardedRepository(unguarded, guard), creation);
  }

  /** The guarded repository inside a wrapper of Gerrit. */
  static Optional<GuardedRepository> of(Repository repository) {
    Repository inner = repository;
    while (inner instanceof DelegateRepository delegate) {
      if (inner instanceof GuardedRepository guarded) {
        return Optional.of(guarded);
      }
      inner = delegate.delegate();
    }
    return Optional.empty();
  }

  /** The refusals since this repository was opened. */
  RefusalLog refusals() {
    return refusals;
  }

  @Override
  public RefDatabase getRefDatabase() {
    return refs;
  }

  @Override
  public RefUpdate updateRef(String ref) throws IOException {
    return updateRef(ref, false);
  }

  @Override
  public RefUpdate updateRef(String ref, boolean detach) throws IOException {
    return refs.newUpdate(ref, detach);
  }

  @Override
  public RefRename renameRef(String from, String to) throws IOException {
    return refs.newRename(from, to);
  }

  /** JGit would pack refs without the guard, and prune objects that the other sites build on. */
  @Override
  public void autoGC(ProgressMonitor monitor) {}

  @Override
  public void convertRefStorage(String format, boolean writeLogs, boolean backup) throws IOException {
    throw new IOException("the storage of refs can't be changed in a guarded repository");
  }

  /**
   * The repository that Gerrit gets. {@code gerrit gc} unwraps one layer and runs JGit's garbage collection on the
   * result if that is a file repository. Code that unwraps all layers, for example for gitweb's directory, still finds
   * it.
   */
  private static class Handle extends DelegateRepository {
    Handle(GuardedRepository guarded) {
      super(guarded);
    }

    @Override
    public void convertRefStorage(String format, boolean writeLogs, boolean backup) throws IOException {
      ((GuardedRepository) delegate).convertRefStorage(format, writeLogs, backup);
    }
  }

  /** The repository that Gerrit gets when it creates one, and closes when it has created the project. */
  private static final class NewHandle extends Handle {
    private final Creation creation;

    NewHandle(GuardedRepository guarded, Creation creation) {
      super(guarded);
      this.creation = creation;
    }

    @Override
    public void close() {
      try {
        super.close();
      } finally {
        creation.close();
      }
    }
  }
}
