package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.entities.Account;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.account.AccountCache;
import com.google.gerrit.server.account.AccountState;
import com.google.gerrit.server.index.account.AccountField;
import com.google.gerrit.server.index.account.AccountIndexCollection;
import com.google.gerrit.server.index.account.AccountIndexer;
import com.google.inject.Inject;
import java.util.List;
import java.util.Optional;

/**
 * Accounts in the index and in caches. The caches of accounts and of external IDs need no eviction: they look at the refs whenever
 * they are used.
 */
final class Accounts {
  private final AccountIndexer indexer;
  private final AccountCache accounts;
  private final Caches caches;
  private final AccountIndexCollection indexes;
  private final IndexConfig config;

  @Inject
  Accounts(AccountIndexer indexer, AccountCache accounts, Caches caches, AccountIndexCollection indexes, IndexConfig config) {
    this.indexer = indexer;
    this.accounts = accounts;
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
    Optional<String> userName = accounts.get(id).flatMap(AccountState::userName);
    if (userName.isPresent()) {
      caches.evict(Caches.SSH_KEYS, userName.get());
    } else { // it is gone, or its name is
      caches.evictAll(Caches.SSH_KEYS);
    }
  }

  /** SSH keys are cached by user name, and external IDs hold those names. */
  void evictKeys() {
    caches.evictAll(Caches.SSH_KEYS);
  }

  /** Whether it was stale. */
  boolean indexIfStale(Account.Id id) {
    return indexer.reindexIfStale(id);
  }

  /** All that are in the index, also those that are nowhere else. */
  List<Account.Id> indexed() throws QueryParseException {
    return IndexedKeys.of(indexes.getSearchIndex(), config, AccountField.ID_STR_FIELD_SPEC).stream()
        .map(id -> Account.id(Integer.parseInt(id)))
        .toList();
  }
}
