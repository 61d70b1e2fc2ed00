package com.github.globalrefdb.gerrit.moves;

/** Receives the progress of following, for metrics. Safe for concurrent use. */
interface Progress {
  /** An action was done. */
  void applied();

  /** An action failed. */
  void failed();

  /** Everything is to be compared. */
  void reset();
}
