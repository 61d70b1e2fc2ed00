package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.gerrit.entities.Project;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.QueryOptions;
import com.google.gerrit.index.project.ProjectField;
import com.google.gerrit.index.project.ProjectIndex;
import com.google.gerrit.index.project.ProjectIndexCollection;
import com.google.gerrit.index.project.ProjectIndexer;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.index.project.StalenessChecker;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.project.ProjectCache;
import com.google.inject.Inject;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.Repository;
import org.eclipse.jgit.lib.RepositoryCache;
import org.eclipse.jgit.lib.RepositoryCache.FileKey;
import org.eclipse.jgit.util.FS;

/** Projects in the index, in caches, and in JGit's cache of open repositories. */
final class Projects {
  private final ProjectIndexer indexer;
  private final ProjectCache projects;
  private final Changes changes;
  private final GitRepositoryManager repositories;
  private final ProjectPresence presence;
  private final StalenessChecker staleness;
  private final ProjectIndexCollection indexes;
  private final IndexConfig indexConfig;

  @Inject
  Projects(
      ProjectIndexer indexer,
      ProjectCache projects,
      Changes changes,
      GitRepositoryManager repositories,
      ProjectPresence presence,
      StalenessChecker staleness,
      ProjectIndexCollection indexes,
      IndexConfig indexConfig) {
    this.indexer = indexer;
    this.projects = projects;
    this.changes = changes;
    this.repositories = repositories;
    this.presence = presence;
    this.staleness = staleness;
    this.indexes = indexes;
    this.indexConfig = indexConfig;
  }

  List<Action> indexConfig(Project.NameKey project) throws IOException {
    checkConfig(project);
    return Stream.concat(changes.dependOnConfig(project).stream(), CheckAgain.of(new ConfigMoved(project)).stream()).toList();
  }

  void checkConfig(Project.NameKey project) throws IOException {
    projects.evict(project);
    if (load(project)) {
      indexer.index(project);
    } else {
      forget(project);
    }
  }

  /** A comparison finds wrong entries of the project and its changes. */
  List<Action> indexRepository(Project.NameKey project) throws IOException {
    presence.reported(project);
    checkRepository(project);
    return Stream.concat(Stream.of(new CompareProject(project)), CheckAgain.of(new RepositoryMoved(project)).stream()).toList();
  }

  void checkRepository(Project.NameKey project) throws IOException {
    if (!reopen(project)) {
      forget(project);
      return;
    }
    projects.evict(project);
    if (load(project)) {
      projects.onCreateProject(project); // adds it to the list, loads it again and indexes it
      load(project);
    }
  }

  /**
   * Loads the project into the cache, from which it is indexed. The indexer deletes the entry of a project that is not in
   * the cache.
   *
   * @return false if the project has gone
   * @throws IOException if the project can't be read at the moment
   */
  private boolean load(Project.NameKey project) throws IOException {
    if (projects.get(project).isPresent()) {
      return true;
    }
    projects.evict(project); // the cache keeps that it found none
    presence.checkGone(project, null);
    return false;
  }

  private void forget(Project.NameKey project) throws IOException {
    projects.remove(project); // from the list and the cache
    indexer.index(project);
    if (!presence.isGone(project)) { // it was created anew meanwhile
      projects.onCreateProject(project);
    }
  }

  /**
   * Makes JGit reopen the repository, and checks whether there is one. Otherwise JGit would continue to read the
   * previous directory, and assume that its objects are present.
   *
   * @return false if the project has gone
   * @throws IOException if the repository can't be opened at the moment
   */
  private boolean reopen(Project.NameKey project) throws IOException {
    File directory;
    try (Repository repository = repositories.openRepository(project)) {
      directory = repository.getDirectory();
      RepositoryCache.unregister(FileKey.exact(directory, FS.DETECTED)); // only then close closes its packs
    } catch (RepositoryNotFoundException e) {
      presence.checkGone(project, e);
      return false;
    }
    if (!FileKey.isGitRepository(directory, FS.DETECTED)) {
      presence.checkGone(project, null);
      return false;
    }
    presence.found(project);
    return true;
  }

  /** Whether the entry was stale. The entry of a project that has gone is. */
  boolean indexIfStale(Project.NameKey project) throws IOException {
    if (presence.isGone(project) || !load(project)) {
      boolean known = isIndexed(project);
      forget(project);
      return known;
    }
    boolean stale = staleness.check(project).isStale();
    if (stale) {
      checkConfig(project);
    }
    return stale;
  }

  private boolean isIndexed(Project.NameKey project) {
    ProjectIndex index = indexes.getSearchIndex(); // which a replica does not have
    return index != null
        && index.getRaw(project, QueryOptions.create(indexConfig, 0, 1, Set.of(ProjectField.NAME_SPEC.getName()))).isPresent();
  }

  /**
   * What differs between Gerrit and its disk.
   *
   * @param moved projects that have gone, and projects that are there but not in the list or not in the index
   * @param unreadable other projects in the list or the index, of which Gerrit would find no repository
   */
  record Differences(List<Project.NameKey> moved, List<Project.NameKey> unreadable) {}

  Differences differences() throws QueryParseException {
    Set<Project.NameKey> there = new TreeSet<>(repositories.list());
    Set<Project.NameKey> listed = projects.all();
    Set<Project.NameKey> indexed = indexes.getSearchIndex() == null ? listed : new TreeSet<>(indexed());
    Set<Project.NameKey> all = new TreeSet<>(there);
    all.addAll(listed);
    all.addAll(indexed);
    Differences differences = new Differences(new ArrayList<>(), new ArrayList<>());
    for (Project.NameKey project : all) {
      boolean known = listed.contains(project) && indexed.contains(project);
      if (presence.hasRepository(project)) {
        presence.found(project);
        if (!known) {
          differences.moved().add(project);
        }
      } else if (presence.isGone(project)) {
        differences.moved().add(project);
      } else if (listed.contains(project) || indexed.contains(project)) {
        differences.unreadable().add(project);
      }
    }
    return differences;
  }

  /** All entries of the index, including those that exist nowhere else. */
  List<Project.NameKey> indexed() throws QueryParseException {
    return IndexedKeys.of(indexes.getSearchIndex(), indexConfig, ProjectField.NAME_SPEC).stream().map(Project::nameKey).toList();
  }
}
