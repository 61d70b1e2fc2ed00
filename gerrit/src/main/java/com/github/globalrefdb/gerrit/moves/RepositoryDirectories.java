package com.github.globalrefdb.gerrit.moves;

import static java.util.concurrent.TimeUnit.MINUTES;

import com.google.common.flogger.FluentLogger;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;
import org.eclipse.jgit.lib.Repository;

/**
 * Which project's repository a directory is. Most lie below the root, under the project's name. Others are reached by a symbolic
 * link, or have a base path of their own: Gerrit is asked where its repositories are. One thread alone asks.
 */
final class RepositoryDirectories {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();
  private static final String GIT = ".git";

  /** Gerrit has to open all its repositories to be asked. */
  private static final Duration ASKED_AGAIN_AFTER = Duration.ofMinutes(1);

  private final String root;
  private final GitRepositoryManager repositories;
  private final LongSupplier clock;
  private final Map<String, Project.NameKey> elsewhere = new HashMap<>();
  private Optional<Long> asked = Optional.empty();

  /**
   * @param root the real path of the directory of repositories
   * @param clock like {@link System#nanoTime}
   */
  RepositoryDirectories(String root, GitRepositoryManager repositories, LongSupplier clock) {
    this.root = root;
    this.repositories = repositories;
    this.clock = clock;
  }

  /**
   * @param directory the real path
   * @return empty if it is none of Gerrit's
   */
  Optional<Project.NameKey> project(String directory) {
    if (directory.startsWith(root + "/")) {
      return Optional.of(Project.nameKey(name(directory.substring(root.length() + 1))));
    }
    if (!elsewhere.containsKey(directory)) {
      ask();
    }
    Optional<Project.NameKey> project = Optional.ofNullable(elsewhere.get(directory));
    if (project.isEmpty()) {
      logger.atWarning().atMostEvery(1, MINUTES).log("refdb: moved refs of %s are not followed: it is none of Gerrit's repositories", directory);
    }
    return project;
  }

  private static String name(String path) {
    if (path.endsWith("/" + GIT)) { // it has a work tree
      return path.substring(0, path.length() - GIT.length() - 1);
    }
    return path.endsWith(GIT) ? path.substring(0, path.length() - GIT.length()) : path;
  }

  /** What has gone stays known: that it has is to be told. */
  private void ask() {
    long now = clock.getAsLong();
    if (asked.isPresent() && now - asked.get() < ASKED_AGAIN_AFTER.toNanos()) {
      return;
    }
    asked = Optional.of(now);
    for (Project.NameKey project : repositories.list()) {
      try (Repository repository = repositories.openRepository(project)) {
        String directory = repository.getDirectory().toPath().toRealPath().toString();
        if (!directory.startsWith(root + "/")) {
          elsewhere.put(directory, project);
        }
      } catch (IOException | RuntimeException e) {
        logger.atFine().withCause(e).log("refdb: the directory of %s is not known", project);
      }
    }
  }
}
