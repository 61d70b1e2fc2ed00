package com.github.globalrefdb.gerrit.moves;

import static java.util.concurrent.TimeUnit.MINUTES;

import com.github.globalrefdb.gerrit.moves.Action.DirectoryMoved;
import com.github.globalrefdb.gerrit.moves.Action.Postponed;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.common.flogger.FluentLogger;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.IOException;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import org.eclipse.jgit.lib.Repository;

/**
 * Maps directories to projects. Most repositories are below the root, under the project's name. Others are reached
 * through a symbolic link, or have a base path of their own: for these, Gerrit is asked where its repositories are.
 * Safe for concurrent use.
 */
final class RepositoryDirectories {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();
  private static final String GIT = ".git";

  /** To answer, Gerrit has to list all its repositories. */
  private static final Duration ASKED_AGAIN_AFTER = Duration.ofMinutes(1);

  private final Path root;
  private final GitRepositoryManager repositories;
  private final ProjectPresence presence;
  private final LongSupplier clock;
  private final Map<String, Project.NameKey> elsewhere = new ConcurrentHashMap<>();
  private Optional<Long> asked = Optional.empty();

  /**
   * @param root the real path of the directory of repositories
   * @param clock like {@link System#nanoTime}
   */
  RepositoryDirectories(Path root, GitRepositoryManager repositories, ProjectPresence presence, LongSupplier clock) {
    this.root = root;
    this.repositories = repositories;
    this.presence = presence;
    this.clock = clock;
  }

  /**
   * @param directory the real path
   * @return empty if the project is unknown: see {@link #find}
   */
  Optional<Project.NameKey> project(String directory) {
    if (directory.startsWith(root + "/")) {
      return Optional.of(Project.nameKey(name(directory.substring(root.toString().length() + 1))));
    }
    return Optional.ofNullable(elsewhere.get(directory));
  }

  /**
   * Determines the project of a directory.
   *
   * @return the actions to do: none if the repository is not Gerrit's; the same action, postponed, if Gerrit was asked
   *     just now
   * @throws IOException it may be a repository of Gerrit's that could not be opened
   */
  synchronized List<Action> find(String directory) throws IOException {
    if (project(directory).isEmpty()) {
      long now = clock.getAsLong();
      if (asked.isPresent() && now - asked.get() < ASKED_AGAIN_AFTER.toNanos()) {
        return List.of(new Postponed(new DirectoryMoved(directory), ASKED_AGAIN_AFTER));
      }
      Optional<IOException> failure = ask();
      if (failure.isPresent() && project(directory).isEmpty()) {
        throw failure.get();
      }
      asked = Optional.of(now);
    }
    Optional<Project.NameKey> project = project(directory);
    if (project.isEmpty()) {
      logger.atWarning().atMostEvery(1, MINUTES).log("refdb: moved refs of %s are not followed: it is none of Gerrit's repositories", directory);
    }
    return project.<List<Action>>map(name -> List.of(new RepositoryMoved(name))).orElse(List.of());
  }

  private static String name(String path) {
    if (path.endsWith("/" + GIT)) { // it has a work tree
      return path.substring(0, path.length() - GIT.length() - 1);
    }
    return path.endsWith(GIT) ? path.substring(0, path.length() - GIT.length()) : path;
  }

  /**
   * Keeps repositories that are gone, because their removal still has to be reported.
   *
   * @return the reason why a repository's directory is unknown, if there is such a repository
   */
  private Optional<IOException> ask() {
    Set<Project.NameKey> all = repositories.list();
    if (!presence.areListed(all)) {
      return Optional.of(new IOException("the repositories can't be listed"));
    }
    Optional<IOException> failure = Optional.empty();
    for (Project.NameKey project : all) {
      if (isBelowRoot(project)) {
        continue;
      }
      try (Repository repository = repositories.openRepository(project)) {
        String directory = repository.getDirectory().toPath().toRealPath().toString();
        if (!directory.startsWith(root + "/")) {
          elsewhere.put(directory, project);
        }
      } catch (IOException | RuntimeException e) {
        if (!presence.isGone(project)) {
          failure = Optional.of(new IOException("the directory of " + project.get() + " is not known", e));
        }
      }
    }
    return failure;
  }

  /** Most need not be opened for this. */
  private boolean isBelowRoot(Project.NameKey project) {
    try {
      Path usual = root.resolve(project.get() + GIT);
      return usual.toRealPath().equals(usual);
    } catch (IOException | InvalidPathException e) { // a name that this JVM has no characters for
      return false;
    }
  }
}
