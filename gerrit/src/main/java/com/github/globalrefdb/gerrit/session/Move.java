package com.github.globalrefdb.gerrit.session;

import static java.util.Objects.requireNonNull;

/**
 * The change of one ref in a transaction. A value is an object ID in hex, zeros for an absent ref, or {@code
 * ref:TARGET} for a symbolic one.
 */
public record Move(String oldValue, String newValue, String ref) {
  public Move {
    requireNonNull(oldValue);
    requireNonNull(newValue);
    requireNonNull(ref);
  }

  public boolean movesNothing() {
    return oldValue.equals(newValue);
  }

  String line() {
    return oldValue + " " + newValue + " " + ref;
  }
}
