package com.github.globalrefdb.gerrit.session;

import java.io.IOException;
import java.util.List;

/** The daemon does not serve this guard. */
public final class RejectedException extends IOException {
  private static final long serialVersionUID = 1L;

  private final String reason;

  /**
   * @param what the request
   */
  RejectedException(String what, String reason, List<String> lines) {
    super(
        lines.isEmpty()
            ? "the site daemon rejected " + what + ": " + reason
            : "the site daemon rejected " + what + " (" + reason + "): " + String.join("; ", lines));
    this.reason = reason;
  }

  /** One word: version, root, instance, server, guard, number, starting or malformed. */
  public String reason() {
    return reason;
  }

  /** Whether the same request may succeed in a moment. */
  public boolean passes() {
    return reason.equals("starting");
  }
}
