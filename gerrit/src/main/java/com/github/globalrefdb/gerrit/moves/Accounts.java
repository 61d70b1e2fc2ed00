package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.entities.Account;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.index.account.AccountField;
import com.google.gerrit.server.index.account.AccountIndexCollection;
import com.google.gerrit.server.index.account.AccountIndexer;
import com.google.inject.Inject;
import java.util.List;

/**
 * Accounts in the index and in caches. The caches of accounts and of external IDs need no eviction, because they check the
 * refs whenever they are used.
 */
final class Accounts {
  private final AccountIndexer indexer;
  private final Caches caches;
  private final AccountIndexCollection indexes;
  private final IndexConfig config;

  @Inject
  Accounts(AccountIndexer indexer, Caches caches, AccountIndexCollection indexes, IndexConfig config) {
    this.indexer = indexer;
    this.caches = caches;
    this.indexes = indexes;
    this.config = config;
  }

  void index(Account.Id id) {
    evict(id); // indexing takes a while
    indexer.index(id);
    evict(id);
  }

  void evict(Account.Id id) {
    caches.evict(Caches.TOKENS, id);
    evictKeys();
  }

  /** SSH keys are cached by the name that a client gives: an account has an entry for each spelling of its user name. */
  void evictKeys() {
    caches.evictAll(Caches.SSH_KEYS);
  }

  /** Whether the entry was stale. */
  boolean indexIfStale(Account.Id id) {
    return indexer.reindexIfStale(id);
  }

  /** All entries of the index, including those that exist nowhere else. */
  List<Account.Id> indexed() throws QueryParseException {
    return IndexedKeys.of(indexes.getSearchIndex(), config, AccountField.ID_STR_FIELD_SPEC).stream()
        .map(id -> Account.id(Integer.parseInt(id)))
        .toList();
  }
}
