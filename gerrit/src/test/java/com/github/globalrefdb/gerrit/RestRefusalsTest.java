package com.github.globalrefdb.gerrit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.common.collect.ImmutableSet;
import com.google.gerrit.server.ExceptionHook.Status;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
import java.util.Optional;
import org.apache.log4j.Logger;
import org.apache.log4j.SimpleLayout;
import org.apache.log4j.WriterAppender;
import org.junit.jupiter.api.Test;

/** What users read of an exception. */
class RestRefusalsTest {
  private final RestRefusals refusals = new RestRefusals(new RecentRefusals());

  @Test
  void aChangeThatWasSubmittedElsewhereMeanwhileIsAConflict() {
    var thrown = new RuntimeException(new IllegalStateException("change 12 of project p unexpectedly had status NEW after submit attempt"));
    assertEquals(Optional.of(409), refusals.getStatus(thrown).map(Status::statusCode));
    List<String> lines = refusals.getUserMessages(thrown, ImmutableSet.of());
    assertTrue(lines.size() == 1 && lines.get(0).contains("perhaps at another site"), lines.toString());
    assertTrue(refusals.skipRetryWithTrace("", "", thrown));
  }

  /** The index says that the change is submitted, as it is at another site, and the repository does not yet. */
  @Test
  void aSetOfChangesThatIsStaleIsAConflict() {
    var thrown = new RuntimeException(new IOException("change 12 missing from ChangeSet[[], []]"));
    assertEquals(Optional.of(409), refusals.getStatus(thrown).map(Status::statusCode));
    StringWriter logged = new StringWriter();
    WriterAppender appender = new WriterAppender(new SimpleLayout(), logged);
    Logger.getLogger(RestRefusals.class).addAppender(appender);
    List<String> lines = refusals.getUserMessages(thrown, ImmutableSet.of());
    Logger.getLogger(RestRefusals.class).removeAppender(appender);
    assertTrue(lines.size() == 1 && lines.get(0).contains("index"), lines.toString());
    assertTrue(logged.toString().contains("change 12:") && logged.toString().contains("gerrit check"), logged.toString());
    assertTrue(refusals.skipRetryWithTrace("", "", thrown));
  }

  @Test
  void otherExceptionsAreGerritsOwn() {
    for (Exception thrown :
        List.of(
            new IllegalStateException(),
            new IllegalStateException("else"),
            new RuntimeException("after submit attempt"),
            new IOException("object 12 missing from pack"))) {
      assertEquals(Optional.empty(), refusals.getStatus(thrown));
      assertTrue(refusals.getUserMessages(thrown, ImmutableSet.of()).isEmpty());
    }
  }
}
