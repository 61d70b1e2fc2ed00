package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.KeysMoved;
import com.google.common.cache.Cache;
import com.google.common.cache.CacheBuilder;
import com.google.gerrit.entities.Account;
import com.google.gerrit.extensions.registration.DynamicMap;
import com.google.gerrit.extensions.registration.PrivateInternals_DynamicMapImpl;
import com.google.gerrit.server.config.SitePaths;
import com.google.inject.util.Providers;
import java.nio.file.Path;
import java.util.Map;
import org.eclipse.jgit.lib.Config;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class AccountsTest {
  @TempDir Path site;
  private final Cache<Object, Object> keys = CacheBuilder.newBuilder().build();
  private final Cache<Object, Object> tokens = CacheBuilder.newBuilder().build();

  private Caches caches() {
    DynamicMap<Cache<?, ?>> caches = DynamicMap.emptyMap();
    PrivateInternals_DynamicMapImpl<Cache<?, ?>> bindings = (PrivateInternals_DynamicMapImpl<Cache<?, ?>>) caches;
    bindings.put("gerrit", Caches.SSH_KEYS, Providers.of(keys));
    bindings.put("gerrit", Caches.TOKENS, Providers.of(tokens));
    return new Caches(caches);
  }

  /** Gerrit caches keys under the name that a client has given, and accepts a name in any spelling. */
  @Test
  void keysAreEvictedUnderEachSpellingOfAName() {
    keys.put("bob", "key");
    keys.put("Bob", "key");
    tokens.put(Account.id(7), "token");
    tokens.put(Account.id(8), "token");
    new Accounts(null, caches(), null, null).evict(Account.id(7));
    assertEquals(Map.of(), keys.asMap());
    assertEquals(Map.of(Account.id(8), "token"), tokens.asMap());
  }

  /** A request may have been loading the cache. */
  @Test
  void keysAreEvictedAgain() throws Exception {
    GerritActions actions = new GerritActions(null, new Accounts(null, caches(), null, null), null, null, null, null, new SavedPlace(new SitePaths(site), new Config()));
    assertEquals(CheckAgain.of(new KeysMoved()), actions.dispatch(new KeysMoved()));
    keys.put("bob", "key");
    actions.dispatch(CheckAgain.of(new KeysMoved()).get(0));
    assertEquals(Map.of(), keys.asMap());
  }
}
