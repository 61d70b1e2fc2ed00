package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;

/**
 * What became of a transaction. If JGit says that it moved a ref, it did. If it says otherwise, or throws, the ref says it: JGit
 * may throw after it has moved refs.
 *
 * @param values what the refs hold, by name. One that is missing could not be read
 * @param thrown by JGit, or by a listener of its
 */
record Outcome(Map<String, String> values, Optional<Exception> thrown) {
  /** Whether the ref holds what it was to hold. */
  boolean shows(Move move) {
    return move.newValue().equals(values.get(move.ref()));
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
