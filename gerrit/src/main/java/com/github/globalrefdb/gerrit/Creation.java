package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.SessionClient;
import com.github.globalrefdb.gerrit.session.Transaction;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import org.eclipse.jgit.lib.RepositoryCache;
import org.eclipse.jgit.lib.RepositoryCache.FileKey;
import org.eclipse.jgit.util.FS;

/**
 * A repository that is being created, from the daemon's OK until Gerrit is finished with it. If it then has no ref, the
 * daemon removes it, and nothing remains of the project.
 */
final class Creation implements AutoCloseable {
  private final SessionClient sessions;
  private final Optional<Transaction> transaction;
  private final Path directory;
  private final AtomicBoolean closed = new AtomicBoolean();

  /**
   * @param transaction empty if the daemon is not asked about creations
   */
  Creation(SessionClient sessions, Optional<Transaction> transaction, Path directory) {
    this.sessions = sessions;
    this.transaction = transaction;
    this.directory = directory;
    forgetRepository(directory); // drop JGit's cached repository, which belongs to another project
  }

  @Override
  public void close() {
    if (transaction.isEmpty() || !closed.compareAndSet(false, true)) {
      return;
    }
    sessions.report(transaction.get());
    if (!Files.exists(directory)) {
      forgetRepository(directory);
    }
  }

  /**
   * JGit caches open repositories, with the objects that they had: in another repository with the same path it would
   * not write those objects.
   */
  static void forgetRepository(Path directory) {
    RepositoryCache.unregister(FileKey.exact(directory.toFile(), FS.DETECTED));
  }
}
