package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.AccountMoved;
import com.github.globalrefdb.gerrit.moves.Action.BranchMoved;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMarked;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.ExternalIdsMoved;
import com.github.globalrefdb.gerrit.moves.Action.GroupMoved;
import com.github.globalrefdb.gerrit.moves.Action.GroupNamesMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.github.globalrefdb.gerrit.session.MovedRef;
import com.google.gerrit.entities.Account;
import com.google.gerrit.entities.AccountGroup;
import com.google.gerrit.entities.BranchNameKey;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import java.nio.file.Path;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What is to be done for which ref. Refs that neither an index nor a cache depends on need nothing: sequences, notes, Gerrit's
 * cache of merges. Nor does the cache of tags: it compares what it has with the refs whenever it is used.
 */
final class Classifier {
  private static final String GIT = ".git";

  private static final Pattern CHANGE = Pattern.compile("refs/changes/\\d\\d/(\\d+)/.+");
  private static final Pattern EDIT = Pattern.compile("refs/users/\\d\\d/\\d+/edit-(\\d+)/\\d+");
  private static final Pattern ACCOUNT = Pattern.compile("refs/users/\\d\\d/(\\d+)");
  private static final Pattern GROUP = Pattern.compile("refs/(?:deleted-)?groups/../([^/]+)");
  private static final Pattern MARK = Pattern.compile("refs/(?:starred-changes|draft-comments)/\\d\\d/(\\d+)/\\d+");

  private final Path root;
  private final String allUsers;
  private final String guard;

  /**
   * @param root the real path of the directory of repositories
   * @param guard this run's: what it moves itself Gerrit indexes itself
   */
  Classifier(Path root, String allUsers, String guard) {
    this.root = root;
    this.allUsers = allUsers;
    this.guard = guard;
  }

  /** What is to be done for all of these, each once. */
  Set<Action> actions(Collection<MovedRef> moves) {
    Set<Action> actions = new LinkedHashSet<>();
    for (MovedRef move : moves) {
      if (!move.guard().equals(Optional.of(guard))) {
        project(move.repository()).flatMap(project -> action(project, move.ref())).ifPresent(actions::add);
      }
    }
    // Gerrit writes the accounts' own refs with their external IDs.
    if (actions.stream().anyMatch(AccountMoved.class::isInstance)) {
      actions.remove(new ExternalIdsMoved());
    }
    return actions;
  }

  /** The project of a repository; empty if it lies elsewhere. */
  Optional<Project.NameKey> project(Path repository) {
    if (!repository.startsWith(root) || repository.equals(root)) {
      return Optional.empty();
    }
    String name = root.relativize(repository).toString();
    return Optional.of(Project.nameKey(name.endsWith(GIT) ? name.substring(0, name.length() - GIT.length()) : name));
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
