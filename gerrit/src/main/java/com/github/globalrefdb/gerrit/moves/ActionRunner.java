package com.github.globalrefdb.gerrit.moves;

import java.util.List;

/** Does actions. For several threads. */
interface ActionRunner {
  /**
   * Does one action: the index first, then the caches that are loaded from it.
   *
   * @return what is to be done as a consequence. The action counts as done when that is done, too
   * @throws Exception it was not done, and is to be tried again
   */
  List<Action> run(Action action) throws Exception;
}
