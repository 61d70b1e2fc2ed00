package com.github.globalrefdb.gerrit.session;

import java.util.List;
import java.util.Optional;

/**
 * An entry of the daemon's list of moves.
 *
 * @param guard the guard that made the move itself; empty if another process did
 * @param ref the moved ref; empty if the whole repository is new here, is gone or was replaced
 * @param repository its real path; not a {@code Path}, because a JVM without a locale accepts only ASCII in it
 */
public record MovedRef(Optional<String> guard, Optional<String> ref, String repository) {
  private static final String NONE = "-";

  static MovedRef parse(String line) throws ProtocolException {
    List<String> fields = Message.of("moved " + line).fields(3);
    if (fields.stream().anyMatch(String::isEmpty)) {
      throw new ProtocolException("the site daemon sent an entry of the list of moves that has not three fields");
    }
    return new MovedRef(optional(fields.get(0)), optional(fields.get(1)), fields.get(2));
  }

  private static Optional<String> optional(String field) {
    return field.equals(NONE) ? Optional.empty() : Optional.of(field);
  }
}
