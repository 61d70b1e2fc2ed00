package com.github.globalrefdb.gerrit.moves;

import static java.nio.file.LinkOption.NOFOLLOW_LINKS;

import com.google.gerrit.entities.Project;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.Set;
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
  private final Function<Project.NameKey, Path> basePath;
  private final Project.NameKey allProjects;

  /**
   * @param basePath the directory below which a project's repository is
   * @param allProjects a project that every Gerrit has
   */
  public ProjectPresence(Function<Project.NameKey, Path> basePath, Project.NameKey allProjects) {
    this.basePath = basePath;
    this.allProjects = allProjects;
  }

  /** Whether the project certainly has no repository: what is in indexes and caches of it may then be removed. */
  public boolean isGone(Project.NameKey project) {
    Path base = basePath.apply(project);
    try {
      // A disk that is mounted or unmounted meanwhile fails one of the two checks.
      return isMounted(base) && isAbsent(base, project.get()) && isMounted(base);
    } catch (IOException | UncheckedIOException | InvalidPathException e) {
      return false;
    }
  }

  /** Whether Gerrit would find a repository of the project if it had to open it. */
  boolean hasRepository(Project.NameKey project) {
    return FileKey.resolve(basePath.apply(project).resolve(project.get()).toFile(), FS.DETECTED) != null;
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

  /** Most base paths have All-Projects. Of others only an empty one looks like a disk that is not mounted. */
  private boolean isMounted(Path base) throws IOException {
    if (basePath.apply(allProjects).equals(base)) {
      return Files.isDirectory(base.resolve(allProjects.get() + Constants.DOT_GIT_EXT).resolve(Constants.OBJECTS))
          || Files.isDirectory(base.resolve(allProjects.get()).resolve(Constants.OBJECTS));
    }
    try (Stream<Path> entries = Files.list(base)) {
      return entries.findAny().isPresent();
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
