package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.github.globalrefdb.gerrit.moves.Action.AccountMoved;
import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareEverything;
import com.github.globalrefdb.gerrit.moves.Action.DirectoryMoved;
import com.github.globalrefdb.gerrit.moves.Action.RepositoryMoved;
import com.google.gerrit.entities.Account;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FindingActionsTest {
  private static final List<Action> CONSEQUENCES = List.of(new CompareEverything());

  @TempDir Path root;
  private final List<Action> others = new ArrayList<>();
  private IOException fails; // unless null, why the others fail

  private FindingActions actions() throws IOException {
    Project.NameKey allProjects = Project.nameKey("All-Projects");
    Files.createDirectories(root.resolve("All-Projects.git"));
    GitRepositoryManager none =
        (GitRepositoryManager)
            Proxy.newProxyInstance(
                getClass().getClassLoader(), new Class<?>[] {GitRepositoryManager.class}, (proxy, method, arguments) -> new TreeSet<>(Set.of(allProjects)));
    return new FindingActions(
        new RepositoryDirectories(root, none, new ProjectPresence(name -> root, allProjects), () -> 0),
        action -> {
          others.add(action);
          if (fails != null) {
            throw fails;
          }
          return CONSEQUENCES;
        });
  }

  @Test
  void theProjectOfADirectoryIsFoundHere() throws Exception {
    assertEquals(
        List.of(new RepositoryMoved(Project.nameKey("team/app"))), actions().run(new DirectoryMoved(root.resolve("team/app.git").toString())));
    assertEquals(List.of(), others);
  }

  @Test
  void aDirectoryOfNoProjectHasNoConsequences() throws Exception {
    assertEquals(List.of(), actions().run(new DirectoryMoved("/elsewhere.git")));
    assertEquals(List.of(), others);
  }

  @Test
  void allElseIsForTheOthers() throws Exception {
    Action moved = new AccountMoved(Account.id(1));
    for (Action action : List.of(moved, CheckAgain.of(moved).get(0), new CompareEverything())) {
      others.clear();
      assertEquals(CONSEQUENCES, actions().run(action));
      assertEquals(List.of(action), others);
    }
  }

  @Test
  void whatTheOthersFailAtFails() {
    fails = new IOException("the index is closed");
    assertSame(fails, assertThrows(IOException.class, () -> actions().run(new CompareEverything())));
  }
}
