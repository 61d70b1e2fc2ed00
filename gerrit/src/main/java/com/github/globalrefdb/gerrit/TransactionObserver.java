package com.github.globalrefdb.gerrit;

import java.time.Duration;

/** Is told of each transaction. */
interface TransactionObserver {
  String OK = "ok";

  /**
   * @param result {@link #OK}, or the reason of the refusal in one word
   * @param untilAnswer from the announcement on
   */
  void answered(String result, Duration untilAnswer);
}
