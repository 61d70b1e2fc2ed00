package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Move;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;

/**
 * The outcome of a transaction. JGit's success counts, and so does its lock failure, because another process may have
 * set the same value. If JGit reports another result, or throws, the ref's value decides: JGit may throw after it has
 * moved refs.
 *
 * @param values the values of the refs, by name. A missing ref could not be read
 * @param thrown by JGit, or by a listener of its
 */
record Outcome(Map<String, String> values, Optional<Exception> thrown) {
  /** Whether the ref has its new value. */
  boolean shows(Move move) {
    return move.newValue().equals(values.get(move.ref()));
  }

  /** Whether the ref still has its old value. */
  boolean showsOld(Move move) {
    return move.oldValue().equals(values.get(move.ref()));
  }

  /** Rethrows JGit's exception. */
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
