package com.github.globalrefdb.gerrit.session;

import java.util.List;

/** The daemon's answer to a request for the moves after a place in its list. */
public sealed interface MovesAnswer {
  /** The place to continue from. */
  String place();

  /**
   * All moves after the requested place, or the first of them.
   *
   * @param place the place after the last of {@code moves}
   */
  record Moves(String place, List<MovedRef> moves) implements MovesAnswer {}

  /** The list no longer has the moves after that place: everything may have moved. */
  record Reset(String place) implements MovesAnswer {}
}
