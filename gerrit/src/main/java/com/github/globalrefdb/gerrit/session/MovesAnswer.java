package com.github.globalrefdb.gerrit.session;

import java.util.List;

/** What the daemon says when it is asked what comes after a place in its list of moves. */
public sealed interface MovesAnswer {
  /** Where to go on. */
  String place();

  /**
   * All that comes after the place that was asked for, or the beginning of it.
   *
   * @param place is behind the last of {@code moves}
   */
  record Moves(String place, List<MovedRef> moves) implements MovesAnswer {}

  /** The list does not have any more what comes after that place: everything may have moved. */
  record Reset(String place) implements MovesAnswer {}
}
