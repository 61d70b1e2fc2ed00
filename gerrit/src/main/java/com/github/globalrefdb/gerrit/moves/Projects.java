package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.google.gerrit.entities.Project;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.project.ProjectField;
import com.google.gerrit.index.project.ProjectIndexCollection;
import com.google.gerrit.index.project.ProjectIndexer;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.index.project.StalenessChecker;
import com.google.gerrit.server.project.ProjectCache;
import com.google.inject.Inject;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.eclipse.jgit.lib.RepositoryCache;
import org.eclipse.jgit.lib.RepositoryCache.FileKey;
import org.eclipse.jgit.util.FS;

/** Projects in the index, in caches, and in JGit's cache of open repositories. */
final class Projects {
  private final ProjectIndexer indexer;
  private final ProjectCache projects;
  private final Changes changes;
  private final FollowSettings settings;
  private final StalenessChecker staleness;
  private final ProjectIndexCollection indexes;
  private final IndexConfig indexConfig;

  @Inject
  Projects(
      ProjectIndexer indexer,
      ProjectCache projects,
      Changes changes,
      FollowSettings settings,
      StalenessChecker staleness,
      ProjectIndexCollection indexes,
      IndexConfig indexConfig) {
    this.indexer = indexer;
    this.projects = projects;
    this.changes = changes;
    this.settings = settings;
    this.staleness = staleness;
    this.indexes = indexes;
    this.indexConfig = indexConfig;
  }

  /** The index is made of what the cache loads: the cache comes first. */
  List<Action> indexConfig(Project.NameKey project) {
    projects.evict(project);
    indexer.index(project);
    return changes.dependOnConfig(project);
  }

  /** What of its changes and its own entry is not right is found by a comparison. */
  List<Action> indexRepository(Project.NameKey project) throws IOException {
    closeRepository(project);
    if (exists(project)) {
      projects.evict(project);
      projects.onCreateProject(project); // on the list, and indexed
    } else {
      projects.remove(project); // off the list; evicted
      indexer.index(project);
    }
    return List.of(new CompareProject(project));
  }

  boolean exists(Project.NameKey project) {
    return directories(project).stream().anyMatch(directory -> FileKey.isGitRepository(directory, FS.DETECTED));
  }

  /** JGit would go on to read the directory that was there before, and to believe that it has its objects. */
  private void closeRepository(Project.NameKey project) {
    directories(project).forEach(directory -> RepositoryCache.unregister(FileKey.exact(directory, FS.DETECTED)));
  }

  /** Where its repository may lie, by the names under which Gerrit may have opened it. */
  private List<File> directories(Project.NameKey project) {
    List<File> directories = new ArrayList<>();
    for (String name : List.of(project.get() + ".git", project.get())) {
      directories.add(settings.basePath().resolve(name).toFile());
      directories.add(settings.root().resolve(name).toFile());
    }
    return directories;
  }

  /** Whether it was stale. */
  boolean indexIfStale(Project.NameKey project) {
    boolean stale = staleness.check(project).isStale();
    if (stale) {
      projects.evict(project);
      indexer.index(project);
    }
    return stale;
  }

  /** All that are in the index, also those that are nowhere else. */
  List<Project.NameKey> indexed() throws QueryParseException {
    return IndexedKeys.of(indexes.getSearchIndex(), indexConfig, ProjectField.NAME_SPEC).stream().map(Project::nameKey).toList();
  }
}
