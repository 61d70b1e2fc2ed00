package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;

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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class ClassifierTest {
  private static final String OURS = "0123456789abcdef0123456789abcdef";
  private static final String OTHER = "ffffffffffffffffffffffffffffffff";
  private static final String ROOT = "/srv/git/";
  private static final Project.NameKey APP = Project.nameKey("team/app");
  private static final Project.NameKey USERS = Project.nameKey("All-Users");

  private final Classifier classifier = new Classifier(ClassifierTest::project, "All-Users", OURS);

  private static Optional<Project.NameKey> project(String directory) {
    return Optional.of(directory).filter(d -> d.startsWith(ROOT)).map(d -> Project.nameKey(d.substring(ROOT.length())));
  }

  static Stream<Arguments> refs() {
    AccountGroup.UUID group = AccountGroup.uuid("abcdef0123456789abcdef0123456789abcdef01");
    return Stream.of(
        row("team/app", "refs/changes/34/1234/meta", new ChangeMoved(APP, Change.id(1234))),
        row("team/app", "refs/changes/34/1234/2", new ChangeMoved(APP, Change.id(1234))),
        row("team/app", "refs/changes/34/1234/robot-comments", new ChangeMoved(APP, Change.id(1234))),
        row("team/app", "refs/users/01/1000001/edit-1234/2", new ChangeMoved(APP, Change.id(1234))),
        row("team/app", "refs/meta/config", new ConfigMoved(APP)),
        row("All-Projects", "refs/meta/config", new ConfigMoved(Project.nameKey("All-Projects"))),
        row("team/app", "HEAD", new ConfigMoved(APP)),
        row("team/app", "refs/heads/a/b", new BranchMoved(BranchNameKey.create(APP, "refs/heads/a/b"))),
        row("team/app", "-", new RepositoryMoved(APP)),
        row("team/app", "refs/tags/v1"),
        row("team/app", "refs/notes/review"),
        row("team/app", "refs/cache-automerge/11/11111111"),
        row("team/app", "refs/users/01/1000001"),
        row("team/app", "refs/groups/ab/" + group.get()),
        row("team/app", "refs/draft-comments/34/1234/1000001"),
        row("All-Users", "refs/users/01/1000001", new AccountMoved(Account.id(1000001))),
        row("All-Users", "refs/users/01/1000001/other"),
        row("All-Users", "refs/users/default"),
        row("All-Users", "refs/users/self"),
        row("All-Users", "refs/meta/external-ids", new KeysMoved(), new ExternalIdsMoved()),
        row("All-Users", "refs/groups/ab/" + group.get(), new GroupMoved(group)),
        row("All-Users", "refs/deleted-groups/ab/" + group.get(), new GroupMoved(group)),
        row("All-Users", "refs/meta/group-names", new GroupNamesMoved()),
        row("All-Users", "refs/starred-changes/34/1234/1000001", new ChangeMarked(Change.id(1234))),
        row("All-Users", "refs/draft-comments/34/1234/1000001", new ChangeMarked(Change.id(1234))),
        row("All-Users", "refs/changes/34/1234/meta", new ChangeMoved(USERS, Change.id(1234))),
        row("All-Projects", "refs/sequences/changes"),
        row("team/app", "refs/changes/34/99999999999/meta"),
        row("team/app", "refs/changes/34/1234"));
  }

  private static Arguments row(String project, String ref, Action... actions) {
    return Arguments.of(project, ref, List.of(actions));
  }

  @ParameterizedTest(name = "{1} of {0}: {2}")
  @MethodSource("refs")
  void aRefSaysWhatToDo(String project, String ref, List<Action> actions) {
    assertEquals(actions, actions(move("-", project, ref)));
  }

  @Test
  void aWholeAnswerBecomesEachActionOnce() {
    List<Action> actions =
        actions(
            move("-", "team/app", "refs/changes/34/1234/1"),
            move("-", "team/app", "refs/changes/34/1234/meta"),
            move(OTHER, "team/app", "refs/changes/34/1234/meta"),
            move("-", "team/app", "refs/changes/35/1235/meta"));
    assertEquals(List.of(new ChangeMoved(APP, Change.id(1234)), new ChangeMoved(APP, Change.id(1235))), actions);
  }

  @Test
  void whatThisRunHasMovedIsLeftToGerrit() {
    assertEquals(List.of(), actions(move(OURS, "team/app", "refs/meta/config")));
  }

  /** Gerrit evicts an account's SSH keys under one spelling of the user's name. */
  @Test
  void whenThisRunHasMovedAnAccountAllKeysAreEvicted() {
    assertEquals(
        List.of(new KeysMoved()),
        actions(
            move(OURS, "All-Users", "refs/meta/external-ids"),
            move(OURS, "All-Users", "refs/users/07/7"),
            move(OURS, "All-Users", "refs/users/08/8")));
  }

  /** Where All-Users is, is unknown if it is reached through a symbolic link. */
  @Test
  void whenThisRunHasMovedSomethingInAnUnknownDirectoryAllKeysAreEvicted() {
    MovedRef account = new MovedRef(Optional.of(OURS), Optional.of("refs/users/07/7"), "/elsewhere");
    assertEquals(List.of(new KeysMoved(), new DirectoryMoved("/elsewhere")), actions(account, account));
  }

  @Test
  void whatAnEarlierRunHasMovedIsNot() {
    assertEquals(List.of(new ConfigMoved(APP)), actions(move(OTHER, "team/app", "refs/meta/config")));
  }

  @Test
  void externalIdsNeedNothingBesideTheAccountsThatTheyCameWith() {
    assertEquals(
        List.of(new AccountMoved(Account.id(7))),
        actions(move("-", "All-Users", "refs/meta/external-ids"), move("-", "All-Users", "refs/users/07/7")));
  }

  @Test
  void externalIdsThatCameAloneAreCompared() {
    assertEquals(
        List.of(new KeysMoved(), new ExternalIdsMoved(), new ConfigMoved(APP), new AccountMoved(Account.id(7))),
        actions(
            move("-", "All-Users", "refs/meta/external-ids"),
            move("-", "team/app", "refs/meta/config"),
            move("-", "All-Users", "refs/users/07/7")));
  }

  @Test
  void whoseADirectoryIsIsFoundOutOnce() {
    MovedRef branch = new MovedRef(Optional.empty(), Optional.of("refs/heads/main"), "/elsewhere");
    MovedRef whole = new MovedRef(Optional.empty(), Optional.empty(), "/elsewhere");
    assertEquals(List.of(new DirectoryMoved("/elsewhere")), new ArrayList<>(classifier.actions(List.of(branch, whole))));
  }

  private List<Action> actions(MovedRef... moves) {
    return new ArrayList<>(classifier.actions(Arrays.asList(moves)));
  }

  private static MovedRef move(String who, String project, String ref) {
    return new MovedRef(optional(who), optional(ref), ROOT + project);
  }

  private static Optional<String> optional(String field) {
    return field.equals("-") ? Optional.empty() : Optional.of(field);
  }
}
