package com.github.globalrefdb.gerrit.moves;

/** Is told how following goes: metrics are made of it. For several threads. */
interface Progress {
  /** An action was done. */
  void applied();

  /** An action failed. */
  void failed();

  /** Everything is to be compared. */
  void reset();
}
