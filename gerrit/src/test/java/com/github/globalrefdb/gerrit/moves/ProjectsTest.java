package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.common.collect.ImmutableSortedSet;
import com.google.gerrit.entities.Project;
import com.google.gerrit.index.project.ProjectIndexCollection;
import com.google.gerrit.index.project.ProjectIndexer;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.index.change.ChangeIndexCollection;
import com.google.gerrit.server.project.ProjectCache;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.Config;
import org.junit.jupiter.api.Test;

class ProjectsTest {
  private static final Project.NameKey APP = Project.nameKey("team/app");

  private ImmutableSortedSet<Project.NameKey> listed = ImmutableSortedSet.of(APP);
  private final List<String> done = new ArrayList<>();
  private final Projects projects;

  /** There is no repository, and no index. */
  ProjectsTest() {
    GitRepositoryManager repositories =
        proxy(
            GitRepositoryManager.class,
            method -> {
              if (method.equals("getRepositoryStatus")) {
                return GitRepositoryManager.Status.NON_EXISTENT;
              }
              throw new RepositoryNotFoundException(APP.get());
            });
    ProjectCache cache =
        proxy(
            ProjectCache.class,
            method -> {
              if (method.equals("all")) {
                return listed;
              }
              done.add(method);
              return null;
            });
    ProjectIndexer indexer =
        proxy(
            ProjectIndexer.class,
            method -> {
              done.add(method);
              return null;
            });
    Changes changes = new Changes(null, null, null, null, repositories, null, new ChangeIndexCollection(), new Config());
    projects = new Projects(indexer, cache, changes, repositories, null, new ProjectIndexCollection(), null);
  }

  private interface Answer {
    Object to(String method) throws Exception;
  }

  private static <T> T proxy(Class<T> type, Answer answer) {
    return type.cast(
        Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> answer.to(method.getName())));
  }

  /** A request may have been loading the cache from what was there before. */
  @Test
  void aConfigurationIsLookedAtAgain() {
    assertEquals(CheckAgain.of(new ConfigMoved(APP)), projects.indexConfig(APP));
    assertEquals(List.of("evict", "index"), done);
  }

  @Test
  void aRepositoryIsLookedAtAgain() throws Exception {
    List<Action> expected = Stream.concat(Stream.of(new CompareProject(APP)), CheckAgain.of(new RepositoryMoved(APP)).stream()).toList();
    assertEquals(expected, projects.indexRepository(APP));
    assertEquals(List.of("remove", "index"), done);
  }

  @Test
  void aProjectThatOnlyGerritKnowsIsStaleAndForgotten() throws Exception {
    assertTrue(projects.indexIfStale(APP));
    assertEquals(List.of("remove", "index"), done);
    listed = ImmutableSortedSet.of();
    assertFalse(projects.indexIfStale(APP));
  }
}
