package com.github.globalrefdb.gerrit.moves;

import com.google.common.cache.Cache;
import com.google.common.flogger.FluentLogger;
import com.google.gerrit.extensions.registration.DynamicMap;
import com.google.inject.Inject;
import java.util.List;
import java.util.Optional;

/** Gerrit's caches, by name, because not all of them have an interface for eviction. */
final class Caches {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  static final String PROJECTS = "projects";
  static final String PROJECT_LIST = "project_list";
  static final String SSH_KEYS = "sshkeys";
  static final String TOKENS = "tokens"; // from Gerrit 3.13 on
  static final String CHANGE_PROJECTS = "changeid_project";

  /** Caches that are loaded from the groups and their index. */
  static final List<String> GROUPS = List.of("groups", "groups_byname", "groups_bymember", "groups_bysubgroup", "groups_external");

  /** Caches named above that exist in all versions. */
  private static final List<String> EXPECTED =
      List.of(PROJECTS, PROJECT_LIST, SSH_KEYS, CHANGE_PROJECTS, "groups", "groups_byname", "groups_bymember", "groups_bysubgroup");

  private final DynamicMap<Cache<?, ?>> caches;

  @Inject
  Caches(DynamicMap<Cache<?, ?>> caches) {
    this.caches = caches;
  }

  /** A version of Gerrit with other names would continue to accept permissions and credentials that were revoked elsewhere. */
  void check() {
    for (String name : EXPECTED) {
      if (find(name).isEmpty()) {
        logger.atSevere().log(
            "refdb: this Gerrit has no cache %s: what is revoked at another site may still be accepted here for a while", name);
      }
    }
  }

  private Optional<Cache<?, ?>> find(String name) {
    return Optional.ofNullable(caches.get("gerrit", name));
  }

  void evict(String name, Object key) {
    find(name).ifPresent(cache -> cache.invalidate(key));
  }

  void evictAll(String name) {
    find(name).ifPresent(Cache::invalidateAll);
  }

  void evictGroups() {
    GROUPS.forEach(this::evictAll);
  }

  /** All caches that do not check the refs themselves. Disk caches do, and take long to clear. */
  void evictEverything() {
    evictGroups();
    List.of(PROJECTS, PROJECT_LIST, SSH_KEYS, TOKENS, CHANGE_PROJECTS).forEach(this::evictAll);
  }
}
