package com.github.globalrefdb.gerrit.moves;

import static java.nio.file.LinkOption.NOFOLLOW_LINKS;

import com.google.gerrit.entities.Project;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.stream.Stream;
import org.eclipse.jgit.lib.Constants;
import org.eclipse.jgit.lib.RepositoryCache.FileKey;
import org.eclipse.jgit.util.FS;

/**
 * Tells a project that has gone from one that cannot be read at the moment, because its disk is not mounted, its
 * permissions are wrong, its HEAD is empty or this process has too many open files. JGit reports all of them as
 * repositories that do not exist. Opens no repository. Safe for concurrent use.
 */
public final class ProjectPresence {
  private static final String DEVICE = "unix:dev";

  private final Function<Project.NameKey, Path> basePath;
  private final Project.NameKey allProjects;
  private final Set<Project.NameKey> reported = ConcurrentHashMap.newKeySet();

  /**
   * @param basePath the directory below which a project's repository is
   * @param allProjects a project that every Gerrit has
   */
  public ProjectPresence(Function<Project.NameKey, Path> basePath, Project.NameKey allProjects) {
    this.basePath = basePath;
    this.allProjects = allProjects;
  }

  /**
   * Whether the project certainly has no repository: what is in indexes and caches of it may then be removed. Unless a
   * removal was reported, an absence in a directory where a disk may be missing is not certain.
   */
  public boolean isGone(Project.NameKey project) {
    Path base = basePath.apply(project);
    try {
      // A disk that is mounted or unmounted meanwhile fails one of the two checks.
      return areDisksMounted(base, project) && isAbsent(base, project.get()) && areDisksMounted(base, project);
    } catch (IOException | UncheckedIOException | InvalidPathException e) {
      return false;
    }
  }

  /** The daemon has reported that the repository is new, has gone or was replaced; or it was deleted here. */
  public void reported(Project.NameKey project) {
    reported.add(project);
  }

  /** The repository is there: it has not gone before that is reported again. */
  void found(Project.NameKey project) {
    reported.remove(project);
  }

  /** Whether Gerrit would find a repository of the project if it had to open it. */
  boolean hasRepository(Project.NameKey project) {
    try {
      return FileKey.resolve(basePath.apply(project).resolve(project.get()).toFile(), FS.DETECTED) != null;
    } catch (InvalidPathException e) { // a name that this JVM has no characters for
      return false;
    }
  }

  /**
   * @param cause why this is checked; null if there was no exception
   * @throws IOException if the project may have a repository
   */
  void checkGone(Project.NameKey project, Exception cause) throws IOException {
    if (!isGone(project)) {
      throw new IOException(project.get() + " can't be read at the moment", cause);
    }
  }

  /** Whether a list of all projects can be complete: Gerrit leaves out what it can't read. */
  boolean areListed(Set<Project.NameKey> projects) {
    return projects.contains(allProjects);
  }

  private boolean areDisksMounted(Path base, Project.NameKey project) throws IOException {
    return isMounted(base) && (reported.contains(project) || isOnDiskOf(base, project.get()));
  }

  /** Most base paths have All-Projects. Others look like a disk that is not mounted if they hold no directory. */
  private boolean isMounted(Path base) throws IOException {
    if (basePath.apply(allProjects).equals(base)) {
      return Files.isDirectory(base.resolve(allProjects.get() + Constants.DOT_GIT_EXT).resolve(Constants.OBJECTS))
          || Files.isDirectory(base.resolve(allProjects.get()).resolve(Constants.OBJECTS));
    }
    return holdsDirectory(base);
  }

  /** Whether none of the directories that lead to a project is a mount point, or may be one whose disk is not mounted. */
  private static boolean isOnDiskOf(Path base, String name) throws IOException {
    Object disk = Files.getAttribute(base, DEVICE);
    Path at = base;
    for (Path part : Path.of(name)) {
      at = at.resolve(part);
      if (Files.notExists(at)) {
        return true;
      }
      if (!Files.getAttribute(at, DEVICE).equals(disk) || !holdsDirectory(at)) {
        return false;
      }
    }
    return true;
  }

  /** A mount point may have files underneath, which were written while its disk was not mounted. */
  private static boolean holdsDirectory(Path directory) throws IOException {
    try (Stream<Path> entries = Files.list(directory)) {
      return entries.anyMatch(Files::isDirectory);
    }
  }

  /** Neither of the names under which Gerrit finds a repository exists. */
  private static boolean isAbsent(Path base, String name) {
    return isAbsent(base, Path.of(name + Constants.DOT_GIT_EXT)) && hasNoRepository(base, Path.of(name));
  }

  /** A directory above may be missing, too, but a symbolic link must lead to one. */
  private static boolean isAbsent(Path base, Path path) {
    Path at = base;
    for (Path name : path) {
      if (!at.equals(base) && !Files.isDirectory(at)) {
        return false;
      }
      at = at.resolve(name);
      if (Files.notExists(at, NOFOLLOW_LINKS)) {
        return true;
      }
    }
    return false;
  }

  /** The directory of a project may hold other projects. */
  private static boolean hasNoRepository(Path base, Path path) {
    return Stream.of(Constants.HEAD, Constants.OBJECTS, Constants.DOT_GIT).allMatch(part -> isAbsent(base, path.resolve(part)));
  }
}
