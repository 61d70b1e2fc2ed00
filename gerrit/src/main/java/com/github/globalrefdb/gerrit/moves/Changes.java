package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.google.common.base.Throwables;
import com.google.gerrit.entities.BranchNameKey;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import com.google.gerrit.exceptions.StorageException;
import com.google.gerrit.server.change.MergeabilityComputationBehavior;
import com.google.gerrit.server.config.GerritServerConfig;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.index.change.ChangeField;
import com.google.gerrit.server.index.change.ChangeIndexCollection;
import com.google.gerrit.server.index.change.ChangeIndexer;
import com.google.gerrit.server.index.change.StalenessChecker;
import com.google.gerrit.server.notedb.ChangeNotes;
import com.google.gerrit.server.project.NoSuchChangeException;
import com.google.gerrit.server.query.change.ChangeData;
import com.google.gerrit.server.query.change.InternalChangeQuery;
import com.google.inject.Inject;
import com.google.inject.Provider;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.Config;
import org.eclipse.jgit.lib.Repository;

/** Changes in the index, which a replica does not have. The caches of changes check the refs whenever they are used. */
final class Changes {
  private final ChangeIndexer indexer;
  private final ChangeNotes.Factory notes;
  private final StalenessChecker staleness;
  private final Provider<InternalChangeQuery> queries;
  private final GitRepositoryManager repositories;
  private final ProjectPresence presence;
  private final Caches caches;
  private final ChangeIndexCollection indexes;
  private final boolean mergeability;

  @Inject
  Changes(
      ChangeIndexer indexer,
      ChangeNotes.Factory notes,
      StalenessChecker staleness,
      Provider<InternalChangeQuery> queries,
      GitRepositoryManager repositories,
      ProjectPresence presence,
      Caches caches,
      ChangeIndexCollection indexes,
      @GerritServerConfig Config config) {
    this.indexer = indexer;
    this.notes = notes;
    this.staleness = staleness;
    this.queries = queries;
    this.repositories = repositories;
    this.presence = presence;
    this.caches = caches;
    this.indexes = indexes;
    mergeability = MergeabilityComputationBehavior.fromConfig(config).includeInIndex();
  }

  private boolean areIndexed() {
    return indexes.getSearchIndex() != null;
  }

  /** A change that does not exist is deleted from the index. */
  void index(Project.NameKey project, Change.Id id) throws Exception {
    if (!areIndexed()) {
      return;
    }
    ChangeNotes change;
    try {
      change = notes.createChecked(project, id);
    } catch (StorageException e) {
      if (!saysThatThereIsNone(project, e)) {
        throw e;
      }
      delete(project, id);
      return;
    }
    indexer.index(change);
  }

  /** Not if the project can't be read at the moment. */
  boolean saysThatThereIsNone(Project.NameKey project, StorageException e) {
    return Throwables.getCausalChain(e).stream()
        .anyMatch(cause -> cause instanceof NoSuchChangeException || cause instanceof RepositoryNotFoundException && presence.isGone(project));
  }

  private void delete(Project.NameKey project, Change.Id id) throws Exception {
    if (queries.get().byLegacyChangeId(id).stream().anyMatch(change -> !change.project().equals(project))) {
      return; // a change of another project has the number
    }
    indexer.deleteAsync(project, id).get();
    caches.evict(Caches.CHANGE_PROJECTS, id);
  }

  /** Reindexes a change that was marked. A change that is not in the index has its own entry in the list of moves. */
  List<Action> find(Change.Id id) {
    return areIndexed() ? moved(queries.get().byLegacyChangeId(id)) : List.of();
  }

  /** The changes whose index entries contain their mergeability into the branch. */
  List<Action> dependOn(BranchNameKey branch) {
    return mergeability && areIndexed() ? moved(query().byBranchNew(branch)) : List.of();
  }

  /** The mergeability of changes also depends on the project's submit type. */
  List<Action> dependOnConfig(Project.NameKey project) {
    return mergeability && areIndexed() ? moved(query().byProjectOpen(project)) : List.of();
  }

  private InternalChangeQuery query() {
    return queries.get().setRequestedFields(ChangeField.CHANGE_SPEC);
  }

  private static List<Action> moved(List<ChangeData> changes) {
    return changes.stream().<Action>map(change -> new ChangeMoved(change.project(), change.getId())).toList();
  }

  /** All changes of a project in the repository or in the index; none if there is no index. */
  List<Change.Id> all(Project.NameKey project) throws IOException {
    if (!areIndexed()) {
      return List.of();
    }
    Set<Change.Id> ids = new LinkedHashSet<>();
    try (Repository repository = repositories.openRepository(project)) {
      ids.addAll(ChangeNotes.Factory.scanChangeIds(repository).keySet());
    } catch (RepositoryNotFoundException e) {
      presence.checkGone(project, e); // then everything in the index is stale
    }
    query().byProject(project).forEach(change -> ids.add(change.getId()));
    return new ArrayList<>(ids);
  }

  /** Whether the index differs from the repository. */
  boolean isStale(Change.Id id) {
    return staleness.check(id).isStale();
  }
}
