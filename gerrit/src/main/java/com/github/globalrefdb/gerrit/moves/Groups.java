package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.server.account.GroupCache;
import com.google.gerrit.server.index.group.GroupIndexer;
import com.google.inject.Inject;

/** Groups in the index and in caches. Who is a member is cached by what the index says: it comes first. */
final class Groups {
  private final GroupIndexer indexer;
  private final GroupCache groups;
  private final Caches caches;

  @Inject
  Groups(GroupIndexer indexer, GroupCache groups, Caches caches) {
    this.indexer = indexer;
    this.groups = groups;
    this.caches = caches;
  }

  void index(AccountGroup.UUID id) {
    groups.evict(id);
    indexer.index(id);
    groups.evict(id);
    evict();
  }

  void evict() {
    caches.evictGroups();
  }

  /** Whether it was stale. */
  boolean indexIfStale(AccountGroup.UUID id) {
    groups.evict(id);
    boolean stale = indexer.reindexIfStale(id);
    if (stale) {
      evict();
    }
    return stale;
  }
}
