package com.github.globalrefdb.gerrit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.globalrefdb.gerrit.moves.ProjectPresence;
import com.github.globalrefdb.gerrit.session.Identity;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon.Request;
import com.github.globalrefdb.gerrit.session.SessionClient;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.NavigableSet;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.stream.Stream;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.internal.storage.file.FileRepository;
import org.eclipse.jgit.lib.Constants;
import org.eclipse.jgit.lib.ObjectInserter;
import org.eclipse.jgit.lib.Repository;
import org.eclipse.jgit.lib.RepositoryCache;
import org.eclipse.jgit.lib.RepositoryCache.FileKey;
import org.eclipse.jgit.lib.StoredConfig;
import org.eclipse.jgit.util.FS;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Projects that are made and deleted, with a daemon that does what the test says. */
class GuardedRepositoryManagerTest {
  private static final Project.NameKey NAME = Project.nameKey("team/app");

  @TempDir Path dir;
  private final BlockingQueue<Request> requests = new LinkedBlockingQueue<>();
  private Function<Request, List<String>> answer =
      request -> List.of((request.verb().equals("report") ? "settled " : "ok ") + request.transaction());
  private IOException disk; // unless null, why nothing can be made
  private final AtomicLong clock = new AtomicLong(); // while it stands the daemon is never late
  private Path repository;
  private ScriptedDaemon daemon;
  private SessionClient sessions;
  private ProjectPresence presence;
  private GuardedRepositoryManager manager;

  @BeforeEach
  void open() throws IOException {
    dir = dir.toRealPath();
    Path root = Files.createDirectory(dir.resolve("git"));
    Path linked = Files.createSymbolicLink(dir.resolve("linked"), root);
    repository = root.resolve("team/app.git");
    daemon = new ScriptedDaemon(dir.resolve("s"));
    daemon.serve(
        request -> {
          requests.add(request);
          return answer.apply(request);
        });
    sessions =
        new SessionClient(
            dir.resolve("s"),
            () -> new Identity("test", root, Optional.empty(), Optional.empty()),
            Duration.ofMinutes(10),
            clock::get);
    Project.NameKey allProjects = Project.nameKey("All-Projects");
    Files.createDirectories(root.resolve("All-Projects.git/objects"));
    presence = new ProjectPresence(name -> linked, allProjects);
    manager = new GuardedRepositoryManager(new Disk(root), new RefGuard(sessions, new RecentRefusals()), name -> linked, presence);
  }

  @AfterEach
  void close() throws IOException {
    sessions.close();
    daemon.close();
    RepositoryCache.clear();
  }

  /** Makes and opens repositories as Gerrit's own manager does. */
  private final class Disk implements GitRepositoryManager {
    private final Path root;

    Disk(Path root) {
      this.root = root;
    }

    private FileKey key(Project.NameKey name) {
      return FileKey.exact(root.resolve(name.get() + ".git").toFile(), FS.DETECTED);
    }

    @Override
    public Repository openRepository(Project.NameKey name) throws IOException {
      return RepositoryCache.open(key(name));
    }

    @Override
    public Repository createRepository(Project.NameKey name) throws IOException {
      if (disk != null) {
        throw disk;
      }
      Repository made = RepositoryCache.open(key(name), false);
      made.create(true);
      return made;
    }

    @Override
    public Status getRepositoryStatus(Project.NameKey name) {
      return Status.ACTIVE;
    }

    @Override
    public NavigableSet<Project.NameKey> list() {
      return new TreeSet<>(
          Stream.of("team/app", "team/.refdb-unfinished-daemon-1", ".refdb-unfinished-2/app", "refdb-unfinished").map(Project::nameKey).toList());
    }

    @Override
    public Boolean canPerformGC() {
      return true;
    }
  }

  private String said() throws InterruptedException {
    Request request = requests.take();
    return request.verb() + " " + String.join(",", request.lines()) + request.head().substring(request.head().lastIndexOf(' ') + 1);
  }

  /** The threads that say to the daemon what it has not taken. */
  private static List<Thread> sayingAgain() {
    return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().equals("refdb-deleted")).toList();
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private void delete(Path directory) throws IOException {
    try (Stream<Path> all = Files.walk(directory)) {
      all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
    }
  }

  private void record(String id) throws IOException {
    try (Repository opened = manager.openRepository(NAME)) {
      StoredConfig config = opened.getConfig();
      config.setString("refdb", null, "projectid", id);
      config.save();
    }
    manager.openRepository(NAME).close();
  }

  @Test
  void aRepositoryIsMadeAfterTheOkAndReportedWhenItIsClosed() throws Exception {
    boolean[] before = new boolean[1];
    answer =
        request -> {
          before[0] = before[0] || request.verb().equals("create") && Files.exists(repository);
          return List.of((request.verb().equals("report") ? "settled " : "ok ") + request.transaction());
        };
    try (Repository made = manager.createRepository(NAME)) {
      assertEquals("create " + repository, said());
      assertFalse(before[0]);
      assertTrue(Files.exists(repository));
      assertTrue(requests.isEmpty());
    }
    assertEquals("report 1", said());
    assertTrue(requests.isEmpty());
  }

  @Test
  void aRefusalMakesNothing() {
    answer = request -> List.of("refused " + request.transaction() + " final exists", "the project team/app exists already");
    RefusedException e = assertThrows(RefusedException.class, () -> manager.createRepository(NAME));
    assertEquals("exists", e.reason());
    assertFalse(Files.exists(repository));
    assertEquals(409, new RestRefusals(new RecentRefusals()).getStatus(new IllegalStateException(e)).get().statusCode());
  }

  @Test
  void whatCannotBeMadeIsReported() throws Exception {
    disk = new IOException("the disk is full");
    assertEquals("the disk is full", assertThrows(IOException.class, () -> manager.createRepository(NAME)).getMessage());
    assertEquals("create " + repository, said());
    assertEquals("report 1", said());
  }

  @Test
  void whereSomethingIsTheDaemonIsNotAsked() throws Exception {
    manager.createRepository(NAME).close();
    requests.clear();
    assertThrows(IllegalStateException.class, () -> manager.createRepository(NAME)); // JGit says so
    assertTrue(requests.isEmpty());
  }

  @Test
  void whereSomethingElseIsTheDaemonIsAsked() throws Exception {
    Files.createDirectories(repository);
    answer = request -> List.of("refused " + request.transaction() + " final exists", repository + " already exists: nothing was changed; ask the administrator to move it away");
    assertThrows(RefusedException.class, () -> manager.createRepository(NAME));
    assertEquals("create " + repository, said());
    assertFalse(Files.exists(repository.resolve("HEAD")));
  }

  /** JGit takes objects for written that an earlier repository with the path had. */
  @Test
  void aRepositoryThatTakesTheOthersPlaceGetsItsObjects() throws Exception {
    for (String way : List.of("created again", "cloned, another project", "cloned again")) {
      manager.createRepository(NAME).close();
      record("first");
      try (Repository first = manager.openRepository(NAME)) {
        write(first);
      }
      Path away = dir.resolve("away");
      Files.move(repository, away);
      if (!way.equals("created again")) {
        clone(way.equals("cloned again") ? "first" : "second");
      }
      try (Repository second = way.equals("created again") ? manager.createRepository(NAME) : manager.openRepository(NAME)) {
        write(second);
        assertTrue(Files.exists(repository.resolve("objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904")), way);
      }
      delete(repository);
      delete(away);
      manager.deleted(NAME);
    }
  }

  @Test
  void aRepositoryThatWasDeletedHereHasGoneAlsoFromAnEmptyDirectory() throws Exception {
    manager.createRepository(NAME).close();
    delete(repository);
    assertFalse(presence.isGone(NAME));
    manager.deleted(NAME);
    assertTrue(presence.isGone(NAME));
  }

  /** JGit would go on to return the repository that it has open. */
  @Test
  void aRepositoryThatTheDaemonHasMovedAsideIsNotFound() throws Exception {
    manager.createRepository(NAME).close();
    record("first");
    Files.createDirectory(repository.resolveSibling("docs")); // without others, it is not certain that it has gone
    Files.move(repository, dir.resolve("away"));
    for (int i = 0; i < 2; i++) {
      assertThrows(RepositoryNotFoundException.class, () -> manager.openRepository(NAME));
    }
    manager.createRepository(NAME).close();
    manager.openRepository(NAME).close();
  }

  /** A part that is missing for another reason must not look like a deletion. */
  @Test
  void aRepositoryThatCannotBeReadIsNotGone() throws Exception {
    manager.createRepository(NAME).close();
    record("first");
    Path objects = repository.resolve("objects");
    Files.move(objects, dir.resolve("away"));
    Files.createSymbolicLink(objects, objects); // a loop: it can't be followed
    IOException e = assertThrows(IOException.class, () -> manager.openRepository(NAME));
    assertFalse(e instanceof RepositoryNotFoundException, e.toString());
  }

  @Test
  void aRepositoryWhoseDiskIsNotMountedIsNotGone() throws Exception {
    manager.createRepository(NAME).close();
    record("first");
    Path root = dir.resolve("git");
    Files.move(root, dir.resolve("away"));
    for (boolean mountPoint : List.of(false, true)) {
      if (mountPoint) {
        Files.createDirectory(root);
      }
      IOException e = assertThrows(IOException.class, () -> manager.openRepository(NAME));
      assertFalse(e instanceof RepositoryNotFoundException, e.toString());
    }
    Files.delete(root);
    Files.move(dir.resolve("away"), root);
    manager.openRepository(NAME).close();
  }

  /** A directory that is there without its objects is damaged. */
  @Test
  void aRepositoryWithoutObjectsIsNotGone() throws Exception {
    manager.createRepository(NAME).close();
    record("first");
    Files.move(repository.resolve("objects"), dir.resolve("away"));
    IOException e = assertThrows(IOException.class, () -> manager.openRepository(NAME));
    assertFalse(e instanceof RepositoryNotFoundException, e.toString());
  }

  /** Past the guard, as the daemon does. */
  private void clone(String id) throws IOException {
    try (Repository other = new FileRepository(repository.toFile())) {
      other.create(true);
      StoredConfig config = other.getConfig();
      config.setString("refdb", null, "projectid", id);
      config.save();
    }
  }

  private static void write(Repository repository) throws IOException {
    try (ObjectInserter inserter = repository.newObjectInserter()) {
      inserter.insert(Constants.OBJ_TREE, new byte[0]);
      inserter.flush();
    }
  }

  @Test
  void aDeletionNamesTheIdThatTheRepositoryHad() throws Exception {
    manager.createRepository(NAME).close();
    record("ID");
    delete(repository);
    requests.clear();
    manager.deleted(NAME);
    assertEquals("deleted id ID" + repository, said());
    manager.deleted(NAME);
    assertTrue(requests.isEmpty()); // nobody has opened it since
  }

  @Test
  void aDeletionIsSaidUntilItIsAnswered() throws Exception {
    manager.createRepository(NAME).close();
    record("ID");
    delete(repository);
    requests.clear();
    boolean[] answered = new boolean[1];
    answer =
        request -> {
          boolean first = !answered[0];
          answered[0] = true;
          if (first) {
            clock.addAndGet(Duration.ofSeconds(3).toNanos()); // its limit
          }
          return first ? List.of() : List.of("ok " + request.transaction());
        };
    manager.deleted(NAME);
    assertEquals("deleted id ID" + repository, said());
    assertEquals("deleted id ID" + repository, said());
    for (Thread speaker : sayingAgain()) {
      speaker.join();
    }
  }

  @Test
  void aDeletionIsSaidAgainThatTheDaemonCouldNotNote() throws Exception {
    manager.createRepository(NAME).close();
    record("ID");
    delete(repository);
    requests.clear();
    boolean[] full = {true};
    CountDownLatch seen = new CountDownLatch(1); // who says it again
    answer =
        request -> {
          boolean refused = full[0];
          full[0] = false;
          if (!refused) {
            await(seen);
          }
          return List.of(refused ? "refused " + request.transaction() + " final other" : "ok " + request.transaction());
        };
    manager.deleted(NAME);
    List<Thread> speaker = sayingAgain();
    seen.countDown();
    assertEquals(1, speaker.size());
    assertEquals("deleted id ID" + repository, said());
    assertEquals("deleted id ID" + repository, said());
    while (speaker.get(0).isAlive()) {
      assertEquals(null, requests.poll(10, TimeUnit.MILLISECONDS));
    }
    assertTrue(requests.isEmpty());
  }

  @Test
  void whatTheDaemonRefusesIsNotSaidAgain() throws Exception {
    manager.createRepository(NAME).close();
    record("ID");
    delete(repository);
    requests.clear();
    answer = request -> List.of("refused " + request.transaction() + " final not_configured", "it is there");
    manager.deleted(NAME);
    assertEquals("deleted id ID" + repository, said());
    assertTrue(requests.isEmpty());
    assertEquals(List.of(), sayingAgain());
  }

  /** Gerrit would take it for a project, and mark no index as complete when it vanishes. */
  @Test
  void aRepositoryThatTheDaemonIsMakingIsNoProject() {
    assertEquals(List.of("refdb-unfinished", "team/app"), manager.list().stream().map(Project.NameKey::get).toList());
  }
}
