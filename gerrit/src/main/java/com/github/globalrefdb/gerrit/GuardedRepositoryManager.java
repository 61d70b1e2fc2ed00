package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.moves.ProjectPresence;
import com.github.globalrefdb.gerrit.session.RefusedException;
import com.google.common.flogger.FluentLogger;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.git.LocalDiskRepositoryManager;
import com.google.inject.Inject;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.NavigableSet;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.Constants;
import org.eclipse.jgit.lib.Repository;
import org.eclipse.jgit.lib.RepositoryCache.FileKey;
import org.eclipse.jgit.util.FS;

/** Gerrit's repositories, guarded. Before a new one is made, its name is reserved at all sites. */
final class GuardedRepositoryManager implements GitRepositoryManager {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  /** How long a daemon that did not answer, or could not note a deletion, is left alone: longer each time. */
  private static final Duration DELETED_AGAIN = Duration.ofSeconds(2);

  private static final Duration DELETED_AGAIN_AT_MOST = Duration.ofMinutes(5);

  /** Begins the names of directories in which the site daemon makes repositories. */
  private static final String UNFINISHED = ".refdb-unfinished-";

  private final GitRepositoryManager unguarded;
  private final RefGuard guard;
  private final Function<Project.NameKey, Path> basePath;
  private final ProjectPresence presence;
  private final Map<Project.NameKey, Seen> seen = new ConcurrentHashMap<>(); // when they were last opened

  /**
   * What tells a repository from one that takes its place.
   *
   * @param id that it records, of its project; null if it records none
   * @param objects the file system's, of the directory of its objects
   */
  private record Seen(String id, Object objects) {
    static Seen of(Repository repository) throws IOException {
      Path objects = repository.getDirectory().toPath().resolve(Constants.OBJECTS);
      return new Seen(
          repository.getConfig().getString("refdb", null, "projectid"),
          Files.readAttributes(objects, BasicFileAttributes.class).fileKey());
    }

    /** One that was not under guard may be by now. */
    boolean isReplacedBy(Seen now) {
      return !Objects.equals(objects, now.objects) || id != null && !id.equals(now.id);
    }
  }

  @Inject
  GuardedRepositoryManager(@Unguarded GitRepositoryManager unguarded, RefGuard guard, ProjectPresence presence) {
    this(unguarded, guard, ((LocalDiskRepositoryManager) unguarded)::getBasePath, presence);
  }

  GuardedRepositoryManager(
      GitRepositoryManager unguarded, RefGuard guard, Function<Project.NameKey, Path> basePath, ProjectPresence presence) {
    this.unguarded = unguarded;
    this.guard = guard;
    this.basePath = basePath;
    this.presence = presence;
  }

  @Override
  public Repository openRepository(Project.NameKey name) throws IOException {
    Repository repository = unguarded.openRepository(name);
    Seen now;
    try {
      now = Seen.of(repository);
    } catch (NoSuchFileException e) {
      IOException missing = missing(name, repository.getDirectory().toPath(), e);
      repository.close(); // after it has left the cache: only then its packs are closed
      throw missing;
    } catch (IOException | RuntimeException e) {
      repository.close();
      throw e;
    }
    Seen before = seen.put(name, now);
    if (before != null && before.isReplacedBy(now)) {
      Creation.forgetRepository(repository.getDirectory().toPath());
      repository.close();
      repository = unguarded.openRepository(name);
    }
    return GuardedRepository.wrap(repository, guard);
  }

  /**
   * JGit returns a repository that it has open without looking at the disk. One that the daemon has moved aside does not
   * exist; one whose disk was unmounted is still the project's.
   */
  private IOException missing(Project.NameKey name, Path directory, NoSuchFileException e) {
    if (!presence.isGone(name)) {
      return e;
    }
    Creation.forgetRepository(directory);
    seen.remove(name);
    RepositoryNotFoundException notFound = new RepositoryNotFoundException(name.get());
    notFound.initCause(e);
    return notFound;
  }

  @Override
  public Repository createRepository(Project.NameKey name) throws IOException {
    if (FileKey.resolve(basePath.apply(name).resolve(name.get()).toFile(), FS.DETECTED) != null) {
      return GuardedRepository.wrap(unguarded.createRepository(name), guard); // which says that there is one
    }
    Creation creation = guard.create(directory(name)); // refused if something else is there
    try {
      return GuardedRepository.wrapNew(unguarded.createRepository(name), guard, creation);
    } catch (Throwable e) {
      creation.close();
      throw e;
    }
  }

  /** The real path of a repository, whether it is there or not. */
  private Path directory(Project.NameKey name) throws IOException {
    Path path = basePath.apply(name).resolve(name.get() + Constants.DOT_GIT_EXT).normalize();
    Path existing = path.getParent();
    while (!Files.exists(existing)) {
      existing = existing.getParent();
    }
    return existing.toRealPath().resolve(existing.relativize(path));
  }

  /** Says to the daemon that a repository was deleted, until it is told: then the project is removed at all sites. */
  void deleted(Project.NameKey name) {
    presence.reported(name);
    Seen last = seen.remove(name);
    Path directory;
    try {
      directory = directory(name);
    } catch (IOException e) {
      logger.atSevere().withCause(e).log("refdb: %s was deleted here: run `refdbctl project remove` for it", name);
      return;
    }
    Creation.forgetRepository(directory);
    if (last == null || last.id() == null) {
      return; // it was not under guard
    }
    if (!tellDeleted(name, directory, last.id())) {
      Thread again = new Thread(() -> tellUntilAnswered(name, directory, last.id()), "refdb-deleted");
      again.setDaemon(true);
      again.start();
    }
  }

  private void tellUntilAnswered(Project.NameKey name, Path directory, String id) {
    Duration pause = DELETED_AGAIN;
    do {
      LockSupport.parkNanos(pause.toNanos());
      pause = pause.multipliedBy(2).compareTo(DELETED_AGAIN_AT_MOST) < 0 ? pause.multipliedBy(2) : DELETED_AGAIN_AT_MOST;
    } while (!tellDeleted(name, directory, id));
  }

  /** Whether the daemon has taken it, or has refused what it won't ever take. Otherwise it may, such as when its disk has room again. */
  private boolean tellDeleted(Project.NameKey name, Path directory, String id) {
    try {
      if (!guard.sessions().deleted(directory, id)) {
        logger.atWarning().log("refdb: the site daemon is of an earlier version: run `refdbctl project remove %s`", name);
      }
      return true;
    } catch (RefusedException e) {
      boolean forGood = e.reason().equals("not_configured") || e.reason().equals("malformed");
      logger.atSevere().log(
          "refdb: %s was deleted here, but not at the other sites%s (%s): %s", name, forGood ? "" : " yet", e.reason(), e.getMessage());
      return forGood;
    }
  }

  @Override
  public Status getRepositoryStatus(Project.NameKey name) {
    return unguarded.getRepositoryStatus(name);
  }

  /** Without the repositories that the site daemon is making: they have other names when they are complete. */
  @Override
  public NavigableSet<Project.NameKey> list() {
    return unguarded.list().stream()
        .filter(name -> !("/" + name.get()).contains("/" + UNFINISHED))
        .collect(Collectors.collectingAndThen(Collectors.toCollection(TreeSet::new), Collections::unmodifiableNavigableSet));
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
