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

/** Changes in the index, which a replica does not have. What is cached of them looks at the refs whenever it is used. */
final class Changes {
  private final ChangeIndexer indexer;
  private final ChangeNotes.Factory notes;
  private final StalenessChecker staleness;
  private final Provider<InternalChangeQuery> queries;
  private final GitRepositoryManager repositories;
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
      Caches caches,
      ChangeIndexCollection indexes,
      @GerritServerConfig Config config) {
    this.indexer = indexer;
    this.notes = notes;
    this.staleness = staleness;
    this.queries = queries;
    this.repositories = repositories;
    this.caches = caches;
    this.indexes = indexes;
    mergeability = MergeabilityComputationBehavior.fromConfig(config).includeInIndex();
  }

  private boolean areIndexed() {
    return indexes.getSearchIndex() != null;
  }

  /** A change that is not there is deleted from the index. */
  void index(Project.NameKey project, Change.Id id) throws Exception {
    if (!areIndexed()) {
      return;
    }
    ChangeNotes change;
    try {
      change = notes.createChecked(project, id);
    } catch (StorageException e) {
      if (!saysThatThereIsNone(e)) {
        throw e;
      }
      delete(project, id);
      return;
    }
    indexer.index(change);
  }

  private static boolean saysThatThereIsNone(StorageException e) {
    return Throwables.getCausalChain(e).stream()
        .anyMatch(cause -> cause instanceof NoSuchChangeException || cause instanceof RepositoryNotFoundException);
  }

  private void delete(Project.NameKey project, Change.Id id) throws Exception {
    if (queries.get().byLegacyChangeId(id).stream().anyMatch(change -> !change.project().equals(project))) {
      return; // a change of another project has the number
    }
    indexer.deleteAsync(project, id).get();
    caches.evict(Caches.CHANGE_PROJECTS, id);
  }

  /** Of a change that was marked. One that is not in the index has an entry of its own on the list of moves. */
  List<Action> find(Change.Id id) {
    return areIndexed() ? moved(queries.get().byLegacyChangeId(id)) : List.of();
  }

  /** The changes whose index entries say whether they can be merged into that branch. */
  List<Action> dependOn(BranchNameKey branch) {
    return mergeability && areIndexed() ? moved(query().byBranchNew(branch)) : List.of();
  }

  /** How a project submits, too, decides whether its changes can be merged. */
  List<Action> dependOnConfig(Project.NameKey project) {
    return mergeability && areIndexed() ? moved(query().byProjectOpen(project)) : List.of();
  }

  private InternalChangeQuery query() {
    return queries.get().setRequestedFields(ChangeField.CHANGE_SPEC);
  }

  private static List<Action> moved(List<ChangeData> changes) {
    return changes.stream().<Action>map(change -> new ChangeMoved(change.project(), change.getId())).toList();
  }

  /** All changes that the repository or the index has of a project; none if there is no index to compare. */
  List<Change.Id> all(Project.NameKey project) throws IOException {
    if (!areIndexed()) {
      return List.of();
    }
    Set<Change.Id> ids = new LinkedHashSet<>();
    query().byProject(project).forEach(change -> ids.add(change.getId()));
    try (Repository repository = repositories.openRepository(project)) {
      ids.addAll(ChangeNotes.Factory.scanChangeIds(repository).keySet());
    } catch (RepositoryNotFoundException e) {
      // All that the index has is stale.
    }
    return new ArrayList<>(ids);
  }

  /** Whether the index has not what the repository has. */
  boolean isStale(Change.Id id) {
    return staleness.check(id).isStale();
  }
}
