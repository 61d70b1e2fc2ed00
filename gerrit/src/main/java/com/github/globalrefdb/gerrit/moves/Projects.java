package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.google.gerrit.entities.Project;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.project.ProjectField;
import com.google.gerrit.index.project.ProjectIndexCollection;
import com.google.gerrit.index.project.ProjectIndexer;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.index.project.StalenessChecker;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.project.ProjectCache;
import com.google.inject.Inject;
import java.io.File;
import java.io.IOException;
import java.util.List;
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
  private final StalenessChecker staleness;
  private final ProjectIndexCollection indexes;
  private final IndexConfig indexConfig;

  @Inject
  Projects(
      ProjectIndexer indexer,
      ProjectCache projects,
      Changes changes,
      GitRepositoryManager repositories,
      StalenessChecker staleness,
      ProjectIndexCollection indexes,
      IndexConfig indexConfig) {
    this.indexer = indexer;
    this.projects = projects;
    this.changes = changes;
    this.repositories = repositories;
    this.staleness = staleness;
    this.indexes = indexes;
    this.indexConfig = indexConfig;
  }

  /** The index is built from the cache, so the cache comes first. */
  List<Action> indexConfig(Project.NameKey project) {
    projects.evict(project);
    indexer.index(project);
    return changes.dependOnConfig(project);
  }

  /** A comparison finds wrong entries of the project and its changes. */
  List<Action> indexRepository(Project.NameKey project) throws IOException {
    if (reopen(project)) {
      projects.evict(project);
      projects.onCreateProject(project); // added to the list, and indexed
    } else {
      projects.remove(project); // removed from the list, and evicted
      indexer.index(project);
    }
    return List.of(new CompareProject(project));
  }

  /**
   * Makes JGit reopen the repository, and checks whether there is one. Otherwise JGit would continue to read the
   * previous directory, and assume that its objects are present.
   */
  private boolean reopen(Project.NameKey project) throws IOException {
    File directory;
    try (Repository repository = repositories.openRepository(project)) {
      directory = repository.getDirectory();
    } catch (RepositoryNotFoundException e) {
      return false;
    }
    RepositoryCache.unregister(FileKey.exact(directory, FS.DETECTED));
    return FileKey.isGitRepository(directory, FS.DETECTED);
  }

  /** Whether the entry was stale. */
  boolean indexIfStale(Project.NameKey project) {
    boolean stale = staleness.check(project).isStale();
    if (stale) {
      projects.evict(project);
      indexer.index(project);
    }
    return stale;
  }

  /** All entries of the index, including those that exist nowhere else. */
  List<Project.NameKey> indexed() throws QueryParseException {
    return IndexedKeys.of(indexes.getSearchIndex(), indexConfig, ProjectField.NAME_SPEC).stream().map(Project::nameKey).toList();
  }
}
