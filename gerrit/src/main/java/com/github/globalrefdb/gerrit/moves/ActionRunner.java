package com.github.globalrefdb.gerrit.moves;

import java.util.List;

/** Executes actions. Safe for concurrent use. */
interface ActionRunner {
  /**
   * Executes one action: the index first, then the caches that are loaded from it.
   *
   * @return the consequent actions. The action counts as done when these are done, too
   * @throws Exception if the action failed and has to be retried
   */
  List<Action> run(Action action) throws Exception;
}
