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
 * A repository that is being made, from the daemon's OK until Gerrit has done with it. If it then has no ref, the daemon removes it, and
 * nothing is left of the project.
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
    forgetRepository(directory); // of another project, whatever JGit has
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

  /** JGit keeps open repositories, with the objects that they had: in another one with the same path it would not write those. */
  static void forgetRepository(Path directory) {
    RepositoryCache.unregister(FileKey.exact(directory.toFile(), FS.DETECTED));
  }
}
