package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;

/**
 * What became of a transaction. The refs say it, not what JGit returned: it may throw after it has moved refs.
 *
 * @param values what the refs hold, by name. One that is missing nobody could tell: then JGit's word stands
 * @param thrown by JGit, or by a listener of its
 */
record Outcome(Map<String, String> values, Optional<Exception> thrown) {
  enum Fate {
    MOVED,
    NOT_MOVED,
    UNKNOWN
  }

  Fate of(Move move) {
    String value = values.get(move.ref());
    if (value == null) {
      return Fate.UNKNOWN;
    }
    return value.equals(move.newValue()) ? Fate.MOVED : Fate.NOT_MOVED;
  }

  /** Throws what JGit threw. */
  void rethrow() throws IOException {
    if (thrown.isEmpty()) {
      return;
    }
    if (thrown.get() instanceof RuntimeException e) {
      throw e;
    }
    throw (IOException) thrown.get();
  }
}
