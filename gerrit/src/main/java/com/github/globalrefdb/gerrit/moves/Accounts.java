package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.entities.Account;
import com.google.gerrit.server.account.AccountCache;
import com.google.gerrit.server.account.AccountState;
import com.google.gerrit.server.index.account.AccountIndexer;
import com.google.inject.Inject;
import java.util.Optional;

/**
 * Accounts in the index and in caches. The caches of accounts and of external IDs need no eviction: they look at the refs whenever
 * they are used.
 */
final class Accounts {
  private final AccountIndexer indexer;
  private final AccountCache accounts;
  private final Caches caches;

  @Inject
  Accounts(AccountIndexer indexer, AccountCache accounts, Caches caches) {
    this.indexer = indexer;
    this.accounts = accounts;
    this.caches = caches;
  }

  void index(Account.Id id) {
    evict(id); // indexing takes a while
    indexer.index(id);
    evict(id);
  }

  private void evict(Account.Id id) {
    caches.evict(Caches.TOKENS, id);
    Optional<String> userName = accounts.get(id).flatMap(AccountState::userName);
    if (userName.isPresent()) {
      caches.evict(Caches.SSH_KEYS, userName.get());
    } else { // it is gone, or its name is
      caches.evictAll(Caches.SSH_KEYS);
    }
  }

  /** Whether it was stale. */
  boolean indexIfStale(Account.Id id) {
    return indexer.reindexIfStale(id);
  }
}
