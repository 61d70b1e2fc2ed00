package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.AccountMoved;
import com.github.globalrefdb.gerrit.moves.Action.BranchMoved;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMarked;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.DirectoryMoved;
import com.github.globalrefdb.gerrit.moves.Action.ExternalIdsMoved;
import com.github.globalrefdb.gerrit.moves.Action.GroupMoved;
import com.github.globalrefdb.gerrit.moves.Action.GroupNamesMoved;
import com.github.globalrefdb.gerrit.moves.Action.KeysMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.github.globalrefdb.gerrit.session.MovedRef;
import com.google.gerrit.entities.Account;
import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.entities.BranchNameKey;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What is to be done for which ref. Refs that neither an index nor a cache depends on need nothing: sequences, notes, Gerrit's
 * cache of merges. Nor does the cache of tags: it compares what it has with the refs whenever it is used.
 */
final class Classifier {
  private static final Pattern CHANGE = Pattern.compile("refs/changes/\\d\\d/(\\d+)/.+");
  private static final Pattern EDIT = Pattern.compile("refs/users/\\d\\d/\\d+/edit-(\\d+)/\\d+");
  private static final Pattern ACCOUNT = Pattern.compile("refs/users/\\d\\d/(\\d+)");
  private static final Pattern GROUP = Pattern.compile("refs/(?:deleted-)?groups/../([^/]+)");
  private static final Pattern MARK = Pattern.compile("refs/(?:starred-changes|draft-comments)/\\d\\d/(\\d+)/\\d+");

  private final Function<String, Optional<Project.NameKey>> projects;
  private final String allUsers;
  private final String guard;

  /**
   * @param projects by the real paths of their repositories, as far as they are known
   * @param guard this run's. Gerrit itself indexes what this run moves, and evicts it from caches, except for some SSH keys
   */
  Classifier(Function<String, Optional<Project.NameKey>> projects, String allUsers, String guard) {
    this.projects = projects;
    this.allUsers = allUsers;
    this.guard = guard;
  }

  /** What is to be done for all of these, each once. */
  Set<Action> actions(List<MovedRef> moves) {
    Set<Action> actions = new LinkedHashSet<>();
    for (int i = 0; i < moves.size(); i++) {
      MovedRef move = moves.get(i);
      Optional<Action> action = action(move);
      if (move.guard().equals(Optional.of(guard))) {
        boolean isUnknown = action.filter(DirectoryMoved.class::isInstance).isPresent();
        if (isUnknown || isAccount(moves, i)) { // an unknown one may be All-Users
          actions.add(new KeysMoved());
        }
        if (isUnknown) {
          actions.add(action.get());
        }
        continue;
      }
      // Gerrit writes external IDs with the accounts' own refs, in one transaction.
      boolean covered = action.equals(Optional.of(new ExternalIdsMoved())) && (isAccount(moves, i - 1) || isAccount(moves, i + 1));
      if (covered || action.isEmpty()) {
        continue;
      }
      if (action.get() instanceof ExternalIdsMoved) {
        actions.add(new KeysMoved()); // they are cached by user name
      }
      actions.add(action.get());
    }
    return actions;
  }

  private boolean isAccount(List<MovedRef> moves, int i) {
    return i >= 0 && i < moves.size() && action(moves.get(i)).filter(AccountMoved.class::isInstance).isPresent();
  }

  private Optional<Action> action(MovedRef move) {
    Optional<Project.NameKey> project = projects.apply(move.repository());
    return project.isPresent() ? action(project.get(), move.ref()) : Optional.of(new DirectoryMoved(move.repository()));
  }

  private Optional<Action> action(Project.NameKey project, Optional<String> ref) {
    if (ref.isEmpty()) {
      return Optional.of(new RepositoryMoved(project));
    }
    String name = ref.get();
    Optional<Change.Id> change = number(CHANGE, name).or(() -> number(EDIT, name)).map(Change::id);
    if (change.isPresent()) {
      return Optional.of(new ChangeMoved(project, change.get()));
    }
    if (name.equals("refs/meta/config") || name.equals("HEAD")) {
      return Optional.of(new ConfigMoved(project));
    }
    if (name.startsWith("refs/heads/")) {
      return Optional.of(new BranchMoved(BranchNameKey.create(project, name)));
    }
    return project.get().equals(allUsers) ? actionOfUsers(name) : Optional.empty();
  }

  private static Optional<Action> actionOfUsers(String ref) {
    if (ref.equals("refs/meta/external-ids")) {
      return Optional.of(new ExternalIdsMoved());
    }
    if (ref.equals("refs/meta/group-names")) {
      return Optional.of(new GroupNamesMoved());
    }
    Matcher group = GROUP.matcher(ref);
    if (group.matches()) {
      return Optional.of(new GroupMoved(AccountGroup.uuid(group.group(1))));
    }
    Optional<Action> account = number(ACCOUNT, ref).map(id -> new AccountMoved(Account.id(id)));
    return account.or(() -> number(MARK, ref).map(id -> new ChangeMarked(Change.id(id))));
  }

  private static Optional<Integer> number(Pattern pattern, String ref) {
    Matcher matcher = pattern.matcher(ref);
    try {
      return matcher.matches() ? Optional.of(Integer.valueOf(matcher.group(1))) : Optional.empty();
    } catch (NumberFormatException e) { // more digits than any of Gerrit's has
      return Optional.empty();
    }
  }
}
