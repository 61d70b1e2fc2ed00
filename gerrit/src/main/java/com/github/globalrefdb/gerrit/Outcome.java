package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;

/**
 * What became of a transaction. JGit's success stands, and its lock failure: then somebody else may have made the same value. If it
 * says something else, or throws, the ref says what became of it: JGit may throw after it has moved refs.
 *
 * @param values what the refs hold, by name. One that is missing could not be read
 * @param thrown by JGit, or by a listener of its
 */
record Outcome(Map<String, String> values, Optional<Exception> thrown) {
  /** Whether the ref holds what it was to hold. */
  boolean shows(Move move) {
    return move.newValue().equals(values.get(move.ref()));
  }

  /** Whether the ref holds what it held before. */
  boolean showsOld(Move move) {
    return move.oldValue().equals(values.get(move.ref()));
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
