package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.AccountMoved;
import com.github.globalrefdb.gerrit.moves.Action.BranchMoved;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMarked;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareAccounts;
import com.github.globalrefdb.gerrit.moves.Action.CompareChanges;
import com.github.globalrefdb.gerrit.moves.Action.CompareEverything;
import com.github.globalrefdb.gerrit.moves.Action.CompareGroups;
import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.github.globalrefdb.gerrit.moves.Action.CompareProjectList;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.EverythingMoved;
import com.github.globalrefdb.gerrit.moves.Action.ExternalIdsMoved;
import com.github.globalrefdb.gerrit.moves.Action.GroupMoved;
import com.github.globalrefdb.gerrit.moves.Action.GroupNamesMoved;
import com.github.globalrefdb.gerrit.moves.Action.KeysMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.util.ManualRequestContext;
import com.google.gerrit.server.util.OneOffRequestContext;
import com.google.inject.Inject;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Does actions in this Gerrit, as its internal user. */
final class GerritActions implements ActionRunner {
  static final Duration COMPARE_PROJECT_LIST_EVERY = Duration.ofMinutes(1);

  private final OneOffRequestContext requests;
  private final Accounts accounts;
  private final Groups groups;
  private final Projects projects;
  private final Changes changes;
  private final Comparison comparison;
  private final WithoutRepositoryFile withoutRepository;

  @Inject
  GerritActions(
      OneOffRequestContext requests,
      Accounts accounts,
      Groups groups,
      Projects projects,
      Changes changes,
      Comparison comparison,
      SavedPlace place) {
    this.requests = requests;
    this.accounts = accounts;
    this.groups = groups;
    this.projects = projects;
    this.changes = changes;
    this.comparison = comparison;
    this.withoutRepository = place.withoutRepository();
  }

  @Override
  public List<Action> run(Action action) throws Exception {
    try (ManualRequestContext context = requests.open()) {
      return dispatch(action);
    }
  }

  List<Action> dispatch(Action action) throws Exception {
    if (action instanceof AccountMoved moved) {
      accounts.index(moved.id());
      return CheckAgain.of(action);
    } else if (action instanceof KeysMoved) {
      accounts.evictKeys();
      return CheckAgain.of(action);
    } else if (action instanceof GroupMoved moved) {
      groups.index(moved.id());
      return CheckAgain.of(action);
    } else if (action instanceof GroupNamesMoved) {
      groups.evict();
      return CheckAgain.of(action);
    } else if (action instanceof ConfigMoved moved) {
      return projects.indexConfig(moved.project());
    } else if (action instanceof RepositoryMoved moved) {
      return projects.indexRepository(moved.project());
    } else if (action instanceof ChangeMoved moved) {
      changes.index(moved.project(), moved.id());
      return CheckAgain.of(action);
    } else if (action instanceof CheckAgain check && check.action() instanceof CompareProjectList) {
      return List.of(check.action());
    } else if (action instanceof CompareProjectList) {
      return compareProjectList();
    } else if (action instanceof CheckAgain check) {
      checkAgain(check.action());
    } else if (action instanceof ChangeMarked marked) {
      return changes.find(marked.id());
    } else if (action instanceof BranchMoved moved) {
      return changes.dependOn(moved.branch());
    } else if (action instanceof EverythingMoved) {
      comparison.begin();
      return Stream.concat(Stream.of(new CompareEverything()), CheckAgain.of(action).stream()).toList();
    } else if (action instanceof CompareEverything) {
      return comparison.everything();
    } else if (action instanceof ExternalIdsMoved) {
      return comparison.accounts();
    } else if (action instanceof CompareAccounts compare) {
      return comparison.accounts(compare.ids());
    } else if (action instanceof CompareGroups compare) {
      return comparison.groups(compare.ids());
    } else if (action instanceof CompareProject compare) {
      return comparison.project(compare.project());
    } else if (action instanceof CompareChanges compare) {
      return comparison.changes(compare.project(), compare.ids());
    } else {
      throw new IllegalStateException("no such action: " + action);
    }
    return List.of();
  }

  /** A project that can't be read is only shown. */
  private List<Action> compareProjectList() throws Exception {
    long start = System.nanoTime();
    Projects.Differences differences = projects.differences();
    withoutRepository.write(differences.unreadable());
    List<Action> actions = new ArrayList<>();
    differences.moved().forEach(project -> actions.add(new RepositoryMoved(project)));
    actions.add(new CheckAgain(new CompareProjectList(), pauseAfter(Duration.ofNanos(System.nanoTime() - start))));
    return actions;
  }

  /** A site with many projects is not busy with the comparison all the time. */
  static Duration pauseAfter(Duration taken) {
    Duration pause = taken.multipliedBy(20);
    return pause.compareTo(COMPARE_PROJECT_LIST_EVERY) > 0 ? pause : COMPARE_PROJECT_LIST_EVERY;
  }

  private void checkAgain(Action action) throws Exception {
    if (action instanceof AccountMoved moved) {
      accounts.evict(moved.id());
      accounts.indexIfStale(moved.id());
    } else if (action instanceof KeysMoved) {
      accounts.evictKeys();
    } else if (action instanceof ConfigMoved moved) {
      projects.checkConfig(moved.project());
    } else if (action instanceof RepositoryMoved moved) {
      projects.checkRepository(moved.project());
    } else if (action instanceof GroupMoved moved) {
      groups.indexIfStale(moved.id());
      groups.evict();
    } else if (action instanceof GroupNamesMoved) {
      groups.evict();
    } else if (action instanceof EverythingMoved) {
      comparison.begin();
    } else if (action instanceof ChangeMoved moved && changes.isStale(moved.id())) {
      changes.index(moved.project(), moved.id());
    }
  }
}
