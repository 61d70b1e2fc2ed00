package com.github.globalrefdb.gerrit.moves;

import static com.github.globalrefdb.gerrit.moves.UnreadableProject.APP;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gerrit.exceptions.StorageException;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.index.change.ChangeIndex;
import com.google.gerrit.server.index.change.ChangeIndexCollection;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.Config;
import org.eclipse.jgit.lib.RepositoryCache;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** With Gerrit's own repositories. */
class ChangesTest {
  @TempDir Path site;
  private GitRepositoryManager repositories;
  private Changes changes;

  /** The index is asked what it has. */
  private static final class IndexAsked extends RuntimeException {
    private static final long serialVersionUID = 1;
  }

  @BeforeEach
  void setUp() throws IOException {
    repositories = UnreadableProject.repositories(site);
    ChangeIndexCollection indexes = new ChangeIndexCollection();
    indexes.setSearchIndex(
        (ChangeIndex) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ChangeIndex.class}, (proxy, method, arguments) -> null));
    changes =
        new Changes(
            null,
            null,
            null,
            () -> {
              throw new IndexAsked();
            },
            repositories,
            UnreadableProject.presence(repositories),
            null,
            indexes,
            new Config());
  }

  @AfterEach
  void tearDown() {
    RepositoryCache.clear();
  }

  /** As Gerrit reads a change. */
  private StorageException notFound() {
    return new StorageException(assertThrows(RepositoryNotFoundException.class, () -> repositories.openRepository(APP)));
  }

  @Test
  void changesOfAProjectThatHasGoneAreDeleted() throws Exception {
    UnreadableProject.delete(site);
    assertTrue(changes.saysThatThereIsNone(APP, notFound()));
    assertThrows(IndexAsked.class, () -> changes.all(APP));
  }

  @ParameterizedTest
  @EnumSource
  void changesOfAProjectThatCannotBeReadStay(UnreadableProject why) throws Exception {
    assumeTrue(why.isPossible());
    why.breaks(site);
    try {
      assertFalse(changes.saysThatThereIsNone(APP, notFound()));
      assertThrows(IOException.class, () -> changes.all(APP));
    } finally {
      why.mend(site);
    }
  }
}
