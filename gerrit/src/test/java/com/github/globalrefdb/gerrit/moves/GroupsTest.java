package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.exceptions.StorageException;
import com.google.gerrit.extensions.registration.DynamicMap;
import com.google.gerrit.server.account.GroupCache;
import com.google.gerrit.server.index.group.GroupIndexer;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import org.junit.jupiter.api.Test;

/** With a cache and an indexer that are as Gerrit's. */
class GroupsTest {
  private static final AccountGroup.UUID ID = AccountGroup.uuid("abcdef0123456789abcdef0123456789abcdef01");

  private boolean isReadable = true; // All-Users
  private boolean isIndexed = true;

  private final Groups groups =
      new Groups(
          proxy(GroupIndexer.class, (self, method, arguments) -> index(method.getName())),
          proxy(GroupCache.class, (self, method, arguments) -> null),
          new Caches(DynamicMap.emptyMap()),
          null,
          null);

  private static <T> T proxy(Class<T> type, InvocationHandler handler) {
    return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
  }

  /** The cache from which groups are indexed says of one that it can't read that there is none. */
  private Object index(String method) {
    if (method.equals("index")) {
      isIndexed = isReadable;
      return null;
    }
    if (!isReadable) {
      throw new StorageException("All-Users can't be opened");
    }
    boolean stale = !isIndexed;
    isIndexed = true;
    return stale;
  }

  @Test
  void aGroupThatCannotBeReadIsTriedAgain() {
    isReadable = false;
    assertThrows(StorageException.class, () -> groups.index(ID));
    isReadable = true;
    groups.index(ID);
    assertTrue(isIndexed);
  }

  @Test
  void aGroupWhoseEntryIsMissingIsStaleOnce() {
    isIndexed = false;
    assertEquals(true, groups.indexIfStale(ID));
    assertEquals(false, groups.indexIfStale(ID));
  }
}
