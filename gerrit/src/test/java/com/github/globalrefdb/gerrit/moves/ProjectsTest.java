package com.github.globalrefdb.gerrit.moves;

import static com.github.globalrefdb.gerrit.moves.UnreadableProject.ALL_PROJECTS;
import static com.github.globalrefdb.gerrit.moves.UnreadableProject.APP;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.github.globalrefdb.gerrit.moves.Action.CompareProjectList;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.common.collect.ImmutableList;
import com.google.common.collect.ImmutableListMultimap;
import com.google.common.collect.ImmutableSortedSet;
import com.google.gerrit.entities.Project;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.project.ProjectField;
import com.google.gerrit.index.project.ProjectIndex;
import com.google.gerrit.index.project.ProjectIndexCollection;
import com.google.gerrit.index.project.ProjectIndexer;
import com.google.gerrit.index.query.DataSource;
import com.google.gerrit.index.query.FieldBundle;
import com.google.gerrit.index.query.ListResultSet;
import com.google.gerrit.server.config.SitePaths;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.index.change.ChangeIndexCollection;
import com.google.gerrit.server.project.ProjectCache;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.internal.storage.file.FileRepository;
import org.eclipse.jgit.lib.Config;
import org.eclipse.jgit.lib.RepositoryCache;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** With Gerrit's own repositories, and a cache and an index that are as Gerrit's. */
class ProjectsTest {
  private static final List<Action> REPOSITORY_AGAIN = CheckAgain.of(new RepositoryMoved(APP));

  @TempDir Path site;
  private GitRepositoryManager repositories;
  private final ProjectIndexCollection indexes = new ProjectIndexCollection();
  private Changes changes;
  private Projects projects;
  private Optional<Object> cached = Optional.empty(); // what the cache has of the project; empty if it is to be loaded
  private boolean isListed = true;
  private boolean isIndexed = true;
  private Runnable onRemove = () -> {};

  @BeforeEach
  void setUp() throws IOException {
    repositories = UnreadableProject.repositories(site);
    ProjectCache cache = proxy(ProjectCache.class, this::cache);
    ProjectIndexer indexer = proxy(ProjectIndexer.class, method -> isIndexed = load().isPresent());
    ImmutableList<FieldBundle> others = ImmutableList.of(entry(ALL_PROJECTS));
    ImmutableList<FieldBundle> all = ImmutableList.of(entry(ALL_PROJECTS), entry(APP));
    DataSource<?> source = proxy(DataSource.class, method -> new ListResultSet<>(isIndexed ? all : others));
    indexes.setSearchIndex(proxy(ProjectIndex.class, method -> method.equals("getRaw") ? Optional.ofNullable(isIndexed ? "" : null) : source));
    ProjectPresence presence = UnreadableProject.presence(repositories);
    changes = new Changes(null, null, null, null, repositories, presence, null, new ChangeIndexCollection(), new Config());
    projects = new Projects(indexer, cache, changes, repositories, presence, null, indexes, IndexConfig.createDefault());
  }

  @AfterEach
  void tearDown() {
    RepositoryCache.clear();
  }

  private static FieldBundle entry(Project.NameKey project) {
    return new FieldBundle(ImmutableListMultimap.of(ProjectField.NAME_SPEC.getName(), project.get()), false);
  }

  private Object cache(String method) throws IOException {
    switch (method) {
      case "get":
        return load();
      case "all":
        return isListed ? ImmutableSortedSet.of(ALL_PROJECTS, APP) : ImmutableSortedSet.of(ALL_PROJECTS);
      case "evict":
        cached = Optional.empty();
        return null;
      case "remove":
        isListed = false;
        onRemove.run();
        cached = Optional.empty();
        isIndexed = load().isPresent();
        return null;
      case "onCreateProject":
        isListed = true;
        cached = Optional.empty();
        isIndexed = load().isPresent();
        return null;
      default:
        throw new UnsupportedOperationException(method);
    }
  }

  /** The cache keeps that there is no such project, as Gerrit's does. */
  private Optional<?> load() throws IOException {
    if (cached.isEmpty()) {
      try {
        repositories.openRepository(APP).close();
        cached = Optional.of(Optional.of("its configuration"));
      } catch (RepositoryNotFoundException e) {
        cached = Optional.of(Optional.empty());
      }
    }
    return (Optional<?>) cached.get();
  }

  private interface Answer {
    Object to(String method) throws Exception;
  }

  private static <T> T proxy(Class<T> type, Answer answer) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (self, method, arguments) -> {
              Object result = answer.to(method.getName());
              return method.getReturnType() == void.class ? null : result;
            }));
  }

  /** A request may have been loading the cache from what was there before. */
  @Test
  void aConfigurationIsLookedAtAgain() throws Exception {
    assertEquals(CheckAgain.of(new ConfigMoved(APP)), projects.indexConfig(APP));
    assertTrue(isIndexed && isListed);
  }

  @Test
  void aRepositoryIsLookedAtAgain() throws Exception {
    isIndexed = false;
    isListed = false;
    assertEquals(Stream.concat(Stream.of(new CompareProject(APP)), REPOSITORY_AGAIN.stream()).toList(), projects.indexRepository(APP));
    assertTrue(isIndexed && isListed);
  }

  @Test
  void aProjectThatHasGoneIsForgotten() throws Exception {
    UnreadableProject.delete(site);
    projects.indexRepository(APP);
    assertFalse(isIndexed || isListed);
  }

  @Test
  void aProjectThatOnlyGerritKnowsIsStaleAndForgotten() throws Exception {
    load();
    UnreadableProject.delete(site);
    assertTrue(projects.indexIfStale(APP));
    assertFalse(isIndexed || isListed);
    assertFalse(projects.indexIfStale(APP));
  }

  @Test
  void aProjectThatIsCreatedWhileItIsForgottenIsListed() throws Exception {
    UnreadableProject.delete(site);
    onRemove =
        () -> {
          try {
            new FileRepository(site.resolve("git/team/app.git").toFile()).create(true);
          } catch (IOException e) {
            throw new AssertionError(e);
          }
        };
    projects.checkRepository(APP);
    assertTrue(isIndexed && isListed);
  }

  /** What the comparison of lists leads to; the last action is the next comparison. */
  private List<Action> differences(GerritActions actions) throws Exception {
    List<Action> found = actions.dispatch(new CompareProjectList());
    Action last = found.get(found.size() - 1);
    assertTrue(last instanceof CheckAgain again && again.action().equals(new CompareProjectList()), last.toString());
    assertEquals(List.of(new CompareProjectList()), actions.dispatch(last));
    return found.subList(0, found.size() - 1);
  }

  private GerritActions actions() throws IOException {
    return new GerritActions(null, null, null, projects, null, null, new SavedPlace(new SitePaths(site), new Config()));
  }

  private List<String> shown() throws IOException {
    Path file = site.resolve("data/refdb/without-repository");
    return Files.exists(file) ? Files.readAllLines(file) : List.of();
  }

  @Test
  void aProjectWhoseRemovalWasMissedIsForgotten() throws Exception {
    assertEquals(List.of(), differences(actions()));
    load();
    UnreadableProject.delete(site);
    assertEquals(List.of(new RepositoryMoved(APP)), differences(actions()));
    assertEquals(List.of(), shown());
    actions().dispatch(new RepositoryMoved(APP));
    assertFalse(isIndexed || isListed);
    assertEquals(List.of(), differences(actions()));
  }

  @ParameterizedTest
  @CsvSource({"false, false", "false, true", "true, false"})
  void aProjectThatIsBackIsListedAndIndexed(boolean listed, boolean indexed) throws Exception {
    isListed = listed;
    isIndexed = indexed;
    assertEquals(List.of(new RepositoryMoved(APP)), differences(actions()));
    actions().dispatch(new RepositoryMoved(APP));
    assertTrue(isIndexed && isListed);
    assertEquals(List.of(), differences(actions()));
  }

  /** A replica has no index of projects. */
  @Test
  void withoutIndexOnlyTheListIsCompared() throws Exception {
    indexes.setSearchIndex(null);
    isIndexed = false;
    assertEquals(List.of(), differences(actions()));
    isListed = false;
    assertEquals(List.of(new RepositoryMoved(APP)), differences(actions()));
  }

  @Test
  void aProjectThatCannotBeReadIsShownAndNotForgotten() throws Exception {
    UnreadableProject.HEAD_IS_EMPTY.breaks(site);
    assertEquals(List.of(), differences(actions()));
    assertEquals(List.of("team/app"), shown());
  }

  /** Its directory may be where a disk is to be mounted. */
  @Test
  void belowAnEmptyDirectoryAProjectIsForgottenOnlyIfTheDaemonSaysSo() throws Exception {
    UnreadableProject.delete(site);
    Files.delete(site.resolve("git/team/docs"));
    assertEquals(List.of(), differences(actions()));
    assertEquals(List.of("team/app"), shown());
    for (Doing doing : List.<Doing>of(() -> projects.indexIfStale(APP), () -> projects.checkConfig(APP))) {
      assertThrows(IOException.class, doing::run);
      assertTrue(isIndexed && isListed);
    }
    projects.indexRepository(APP);
    assertFalse(isIndexed || isListed);
    assertEquals(List.of(), changes.all(APP));
  }

  /** That the daemon once reported a removal does not mean that a later absence is one. */
  @Test
  void anAbsenceAfterTheRepositoryWasBackIsNotTheOneThatWasReported() throws Exception {
    UnreadableProject.delete(site);
    projects.indexRepository(APP);
    Files.move(site.resolve("removed"), site.resolve("git/team/app.git"));
    differences(actions());
    isIndexed = true;
    isListed = true;
    UnreadableProject.delete(site);
    Files.delete(site.resolve("git/team/docs"));
    assertEquals(List.of(), differences(actions()));
    assertEquals(List.of("team/app"), shown());
  }

  @Test
  void aComparisonOfTheListThatTakesLongIsSeldom() {
    assertEquals(Duration.ofMinutes(1), GerritActions.pauseAfter(Duration.ofSeconds(3)));
    assertEquals(Duration.ofMinutes(20), GerritActions.pauseAfter(Duration.ofMinutes(1)));
  }

  private interface Doing {
    void run() throws Exception;
  }

  /** It is tried again, and nothing is removed meanwhile. */
  @ParameterizedTest
  @EnumSource
  void aProjectThatCannotBeReadStays(UnreadableProject why) throws Exception {
    assumeTrue(why.isPossible());
    why.breaks(site);
    try {
      for (Doing doing :
          List.<Doing>of(
              () -> projects.indexRepository(APP),
              () -> projects.checkRepository(APP),
              () -> projects.indexConfig(APP),
              () -> projects.checkConfig(APP),
              () -> projects.indexIfStale(APP))) {
        assertThrows(IOException.class, doing::run);
        assertTrue(isIndexed && isListed);
      }
    } finally {
      why.mend(site);
    }
  }

  /** A request that could not read the project leaves in Gerrit's cache that there is none. */
  @Test
  void whatTheCacheMissedIsLoadedAgain() throws Exception {
    cached = Optional.of(Optional.empty());
    assertThrows(IOException.class, () -> projects.indexIfStale(APP));
    assertTrue(isIndexed && isListed);
    assertTrue(load().isPresent());
  }

  @Test
  void aProjectWhoseDiskIsMountedAgainIsFound() throws Exception {
    UnreadableProject.DISK_IS_NOT_MOUNTED.breaks(site);
    assertThrows(IOException.class, () -> projects.checkConfig(APP));
    Files.move(site.resolve("away"), site.resolve("git"));
    projects.checkConfig(APP);
    assertTrue(isIndexed && isListed);
  }
}
