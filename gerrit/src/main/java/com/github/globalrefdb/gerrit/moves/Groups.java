package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.exceptions.StorageException;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.account.GroupCache;
import com.google.gerrit.server.index.group.GroupField;
import com.google.gerrit.server.index.group.GroupIndexCollection;
import com.google.gerrit.server.index.group.GroupIndexer;
import com.google.inject.Inject;
import java.util.List;

/** Groups in the index and in caches. Memberships are cached from the index, so the index comes first. */
final class Groups {
  private final GroupIndexer indexer;
  private final GroupCache groups;
  private final Caches caches;
  private final GroupIndexCollection indexes;
  private final IndexConfig config;

  @Inject
  Groups(GroupIndexer indexer, GroupCache groups, Caches caches, GroupIndexCollection indexes, IndexConfig config) {
    this.indexer = indexer;
    this.groups = groups;
    this.caches = caches;
    this.indexes = indexes;
    this.config = config;
  }

  /** @throws StorageException if All-Users can't be read: the indexer then takes the group for a deleted one */
  void index(AccountGroup.UUID id) {
    groups.evict(id);
    indexer.index(id);
    groups.evict(id);
    indexer.reindexIfStale(id);
    evict();
  }

  void evict() {
    caches.evictGroups();
  }

  /** Whether the entry was stale. */
  boolean indexIfStale(AccountGroup.UUID id) {
    groups.evict(id);
    boolean stale = indexer.reindexIfStale(id);
    if (stale) {
      evict();
    }
    return stale;
  }

  /** All entries of the index, including those that exist nowhere else. */
  List<AccountGroup.UUID> indexed() throws QueryParseException {
    return IndexedKeys.of(indexes.getSearchIndex(), config, GroupField.UUID_FIELD_SPEC).stream().map(AccountGroup::uuid).toList();
  }
}
