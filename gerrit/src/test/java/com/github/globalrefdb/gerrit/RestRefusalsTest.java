package com.github.globalrefdb.gerrit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.common.collect.ImmutableSet;
import com.google.gerrit.server.ExceptionHook.Status;
import java.util.List;
import java.util.Optional;
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

  @Test
  void otherExceptionsAreGerritsOwn() {
    for (Exception thrown : List.of(new IllegalStateException(), new IllegalStateException("else"), new RuntimeException("after submit attempt"))) {
      assertEquals(Optional.empty(), refusals.getStatus(thrown));
      assertTrue(refusals.getUserMessages(thrown, ImmutableSet.of()).isEmpty());
    }
  }
}
