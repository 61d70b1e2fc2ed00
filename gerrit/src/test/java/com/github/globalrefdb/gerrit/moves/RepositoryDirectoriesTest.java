package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.github.globalrefdb.gerrit.moves.Action.DirectoryMoved;
import com.github.globalrefdb.gerrit.moves.Action.Postponed;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
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
  private static final Project.NameKey ALL_PROJECTS = Project.nameKey("All-Projects");

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
    elsewhere = real.resolve("data/team/big.git");
    new FileRepository(elsewhere.toFile()).create(true);
    Path allProjects = root.resolve("All-Projects.git");
    new FileRepository(allProjects.toFile()).create(true);
    repositories.places.put(ALL_PROJECTS, allProjects);
    ProjectPresence presence = new ProjectPresence(name -> name.equals(BIG) ? real.resolve("data") : root, ALL_PROJECTS);
    directories = new RepositoryDirectories(root, repositories, presence, clock::get);
  }

  private Optional<Project.NameKey> project(Path directory) {
    return directories.project(directory.toString());
  }

  private List<Action> find() throws IOException {
    return directories.find(elsewhere.toString());
  }

  private static final List<Action> FOUND = List.of(new RepositoryMoved(BIG));

  @Test
  void aRepositoryBelowTheRootIsTheProjectOfItsName() {
    assertEquals(Optional.of(Project.nameKey("team/app")), project(root.resolve("team/app.git")));
    assertEquals(Optional.of(Project.nameKey("team/app")), project(root.resolve("team/app")));
    assertEquals(Optional.of(Project.nameKey("team/app")), project(root.resolve("team/app/.git")));
  }

  @Test
  void oneBehindASymbolicLinkIsTheProjectOfTheLink() throws IOException {
    repositories.places.put(BIG, Files.createSymbolicLink(root.resolve("team/big.git"), elsewhere));
    assertEquals(Optional.empty(), project(elsewhere));
    assertEquals(FOUND, find());
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  @Test
  void oneWithAnotherBasePathIsGerrits() throws IOException {
    repositories.places.put(BIG, elsewhere);
    assertEquals(FOUND, find());
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  @Test
  void thoseBelowTheRootAreNotOpened() throws IOException {
    Path usual = Files.createDirectories(root.resolve("team/app.git"));
    repositories.places.put(Project.nameKey("team/app"), usual);
    repositories.places.put(BIG, elsewhere);
    find();
    assertEquals(List.of(BIG), repositories.opened);
  }

  @Test
  void whatIsNoneOfGerritsIsAskedForAgainLater() throws IOException {
    assertEquals(List.of(), find());
    repositories.places.put(BIG, elsewhere);
    assertEquals(List.of(new Postponed(new DirectoryMoved(elsewhere.toString()), Duration.ofMinutes(1))), find());
    clock.addAndGet(Duration.ofMinutes(1).toNanos());
    assertEquals(FOUND, find());
  }

  @Test
  void whatHasGoneIsStillKnown() throws IOException {
    repositories.places.put(BIG, elsewhere);
    find();
    repositories.places.clear();
    clock.addAndGet(Duration.ofMinutes(5).toNanos());
    assertEquals(FOUND, find());
    assertEquals(Optional.of(BIG), project(elsewhere));
  }

  @Test
  void oneThatCanNotBeOpenedMayBeIt() throws IOException {
    repositories.places.put(BIG, elsewhere);
    repositories.fails = new IOException("too many open files");
    for (int i = 0; i < 2; i++) {
      assertThrows(IOException.class, this::find);
    }
    repositories.fails = null;
    assertEquals(FOUND, find());
  }

  /** Gerrit says of any repository that it can't open that there is none. */
  @Test
  void oneThatGerritDoesNotFindMayBeItIfItIsThere() throws IOException {
    repositories.places.put(BIG, elsewhere);
    repositories.gone = BIG;
    assertThrows(IOException.class, this::find);
  }

  @Test
  void withoutAllProjectsTheListIsNotComplete() throws IOException {
    repositories.places.clear();
    assertThrows(IOException.class, this::find);
  }

  @Test
  void anotherThatCanNotBeOpenedIsNoMatter() throws IOException {
    repositories.places.put(BIG, elsewhere);
    repositories.places.put(Project.nameKey("team/gone"), temporary.resolve("gone.git"));
    repositories.gone = Project.nameKey("team/gone");
    assertEquals(FOUND, find());
    repositories.fails = new IOException("too many open files");
    assertEquals(FOUND, find());
  }

  private static final class Repositories implements GitRepositoryManager {
    final TreeMap<Project.NameKey, Path> places = new TreeMap<>();
    final List<Project.NameKey> opened = new ArrayList<>();
    IOException fails; // unless null, why none can be opened
    Project.NameKey gone; // that is listed, and not there

    @Override
    public Repository openRepository(Project.NameKey name) throws IOException {
      opened.add(name);
      if (fails != null) {
        throw fails;
      }
      if (!places.containsKey(name) || name.equals(gone)) {
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
