package com.github.globalrefdb.gerrit;

import java.time.Duration;

/** Is notified of each transaction. */
interface TransactionObserver {
  String OK = "ok";

  /**
   * @param result {@link #OK}, or the reason of the refusal in one word
   * @param untilAnswer the time from the announcement to the answer
   */
  void answered(String result, Duration untilAnswer);
}
