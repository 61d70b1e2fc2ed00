package com.github.globalrefdb.gerrit.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class MovedRefTest {
  private static final String GUARD = "0123456789abcdef0123456789abcdef";

  @Test
  void anEntrySaysWhoHasMovedWhatWhere() throws ProtocolException {
    assertEquals(
        new MovedRef(Optional.of(GUARD), Optional.of("refs/heads/x"), "/srv/git/a b.git"),
        MovedRef.parse(GUARD + " refs/heads/x /srv/git/a b.git"));
  }

  @Test
  void dashesAreNobodyAndTheWholeRepository() throws ProtocolException {
    assertEquals(new MovedRef(Optional.empty(), Optional.empty(), "/srv/git/a.git"), MovedRef.parse("- - /srv/git/a.git"));
  }

  @Test
  void lessThanThreeFieldsAreNoEntry() {
    for (String line : List.of("-", "- refs/heads/x", "- refs/heads/x ", "-  /srv/git/a.git")) {
      assertThrows(ProtocolException.class, () -> MovedRef.parse(line), line);
    }
  }
}
