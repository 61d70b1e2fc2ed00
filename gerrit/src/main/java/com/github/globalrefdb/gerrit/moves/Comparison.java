package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.AccountMoved;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareAccounts;
import com.github.globalrefdb.gerrit.moves.Action.CompareChanges;
import com.github.globalrefdb.gerrit.moves.Action.CompareGroups;
import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.github.globalrefdb.gerrit.moves.Action.GroupNamesMoved;
import com.google.common.collect.Lists;
import com.google.gerrit.entities.Account;
import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.GroupReference;
import com.google.gerrit.entities.Project;
import com.google.gerrit.index.query.QueryParseException;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.inject.Inject;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/**
 * Compares indexes with repositories: all of them after a reset, in pieces, with priority for other work. An entry that
 * is not stale costs reading a few refs.
 */
final class Comparison {
  private static final int PIECE = 50;

  private final com.google.gerrit.server.account.Accounts allAccounts;
  private final com.google.gerrit.server.group.db.Groups allGroups;
  private final GitRepositoryManager repositories;
  private final Accounts accounts;
  private final Groups groups;
  private final Projects projects;
  private final Changes changes;
  private final Caches caches;
  private final ComparedCount count;

  @Inject
  Comparison(
      com.google.gerrit.server.account.Accounts allAccounts,
      com.google.gerrit.server.group.db.Groups allGroups,
      GitRepositoryManager repositories,
      Accounts accounts,
      Groups groups,
      Projects projects,
      Changes changes,
      Caches caches,
      ComparedCount count) {
    this.allAccounts = allAccounts;
    this.allGroups = allGroups;
    this.repositories = repositories;
    this.accounts = accounts;
    this.groups = groups;
    this.projects = projects;
    this.changes = changes;
    this.caches = caches;
    this.count = count;
  }

  /** Revocations must not wait for the comparison. */
  void begin() {
    caches.evictEverything();
  }

  List<Action> everything() throws Exception {
    List<Action> actions = new ArrayList<>();
    Set<AccountGroup.UUID> ids = new LinkedHashSet<>(groups.indexed());
    try (Stream<GroupReference> references = allGroups.getAllGroupReferences()) {
      references.map(GroupReference::getUUID).forEach(ids::add);
    }
    Lists.partition(List.copyOf(ids), PIECE).forEach(piece -> actions.add(new CompareGroups(List.copyOf(piece))));
    actions.addAll(accounts());
    Set<Project.NameKey> names = new TreeSet<>(projects.indexed());
    names.addAll(repositories.list());
    names.forEach(name -> actions.add(new CompareProject(name)));
    return actions;
  }

  List<Action> accounts() throws IOException, QueryParseException {
    Set<Account.Id> ids = new LinkedHashSet<>(accounts.indexed());
    ids.addAll(allAccounts.allIds());
    return Lists.partition(List.copyOf(ids), PIECE).stream().<Action>map(piece -> new CompareAccounts(List.copyOf(piece))).toList();
  }

  List<Action> accounts(List<Account.Id> ids) {
    return ids.stream().filter(id -> compared(accounts.indexIfStale(id))).flatMap(id -> CheckAgain.of(new AccountMoved(id)).stream()).toList();
  }

  List<Action> groups(List<AccountGroup.UUID> ids) {
    long stale = ids.stream().filter(id -> compared(groups.indexIfStale(id))).count();
    return stale > 0 ? CheckAgain.of(new GroupNamesMoved()) : List.of();
  }

  List<Action> project(Project.NameKey project) throws IOException {
    compared(projects.indexIfStale(project));
    return Lists.partition(changes.all(project), PIECE).stream()
        .<Action>map(piece -> new CompareChanges(project, List.copyOf(piece)))
        .toList();
  }

  /** Stale changes are indexed one by one, so that a failing change does not cause the others to be repeated. */
  List<Action> changes(Project.NameKey project, List<Change.Id> ids) {
    List<Action> actions = new ArrayList<>();
    for (Change.Id id : ids) {
      boolean isStale = changes.isStale(id);
      compared(isStale);
      if (isStale) {
        actions.add(new ChangeMoved(project, id));
      }
    }
    return actions;
  }

  private boolean compared(boolean isStale) {
    count.add(isStale);
    return isStale;
  }
}
