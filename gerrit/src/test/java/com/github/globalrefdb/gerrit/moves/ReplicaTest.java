package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gerrit.entities.BranchNameKey;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import com.google.gerrit.server.index.account.AccountField;
import com.google.gerrit.server.index.account.AccountIndexCollection;
import com.google.gerrit.server.index.change.ChangeIndexCollection;
import java.util.List;
import org.eclipse.jgit.lib.Config;
import org.junit.jupiter.api.Test;

/** A replica (daemon --replica) has an index of groups, and no other. */
class ReplicaTest {
  private static final Project.NameKey APP = Project.nameKey("team/app");

  @Test
  void anIndexThatIsNotThereHasNoKeys() throws Exception {
    assertEquals(List.of(), IndexedKeys.of(new AccountIndexCollection().getSearchIndex(), null, AccountField.ID_STR_FIELD_SPEC));
  }

  @Test
  void nothingIsToBeDoneForChanges() throws Exception {
    Config config = new Config();
    config.setString("change", null, "mergeabilityComputationBehavior", "API_REF_UPDATED_AND_CHANGE_REINDEX");
    Changes changes = new Changes(null, null, null, null, null, null, null, new ChangeIndexCollection(), config);
    changes.index(APP, Change.id(1));
    assertEquals(List.of(), changes.find(Change.id(1)));
    assertEquals(List.of(), changes.dependOn(BranchNameKey.create(APP, "refs/heads/main")));
    assertEquals(List.of(), changes.dependOnConfig(APP));
    assertEquals(List.of(), changes.all(APP));
  }
}
