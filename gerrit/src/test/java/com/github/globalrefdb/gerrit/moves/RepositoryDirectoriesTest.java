package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.NavigableSet;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.internal.storage.file.FileRepository;
import org.eclipse.jgit.lib.Repository;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class RepositoryDirectoriesTest {
  private static final Project.NameKey BIG = Project.nameKey("team/big");

  @TempDir Path temporary;
  private Path root;
  private Path elsewhere;
  private final AtomicLong clock = new AtomicLong();
  private final Repositories repositories = new Repositories();
  private RepositoryDirectories directories;

  @BeforeEach
  void setUp() throws IOException {
    Path real = temporary.toRealPath();
    root = Files.createDirectories(real.resolve("git/team")).getParent();
    elsewhere = real.resolve("data/big.git");
    new FileRepository(elsewhere.toFile()).create(true);
    directories = new RepositoryDirectories(root.toString(), repositories, clock::get);
  }

  private Optional<Project.NameKey> project(Path directory) {
    return directories.project(directory.toString());
  }

  @Test
  void aRepositoryBelowTheRootIsTheProjectOfItsName() {
    assertEquals(Optional.of(Project.nameKey("team/app")), project(root.resolve("team/app.git")));
    assertEquals(Optional.of(Project.nameKey("team/app")), project(root.resolve("team/app")));
    assertEquals(Optional.of(Project.nameKey("team/app")), project(root.resolve("team/app/.git")));
  }

  @Test
  void oneBehindASymbolicLinkIsTheProjectOfTheLink() throws IOException {
    repositories.places.put(BIG, Files.createSymbolicLink(root.resolve("team/big.git"), elsewhere));
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  @Test
  void oneWithAnotherBasePathIsGerrits() {
    repositories.places.put(BIG, elsewhere);
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  @Test
  void whatIsNoneOfGerritsIsAskedForAgainLater() {
    assertEquals(Optional.empty(), project(elsewhere));
    repositories.places.put(BIG, elsewhere);
    assertEquals(Optional.empty(), project(elsewhere));
    clock.addAndGet(Duration.ofMinutes(1).toNanos());
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  @Test
  void whatHasGoneIsStillKnown() {
    repositories.places.put(BIG, elsewhere);
    assertEquals(Optional.of(BIG), project(elsewhere));
    repositories.places.clear();
    clock.addAndGet(Duration.ofMinutes(5).toNanos());
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  private static final class Repositories implements GitRepositoryManager {
    final TreeMap<Project.NameKey, Path> places = new TreeMap<>();

    @Override
    public Repository openRepository(Project.NameKey name) throws IOException {
      if (!places.containsKey(name)) {
        throw new RepositoryNotFoundException(name.get());
      }
      return new FileRepository(places.get(name).toFile());
    }

    @Override
    public Repository createRepository(Project.NameKey name) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Status getRepositoryStatus(Project.NameKey name) {
      return places.containsKey(name) ? Status.ACTIVE : Status.NON_EXISTENT;
    }

    @Override
    public NavigableSet<Project.NameKey> list() {
      return places.navigableKeySet();
    }

    @Override
    public Boolean canPerformGC() {
      return false;
    }
  }
}
