package com.github.globalrefdb.gerrit.session;

import java.io.IOException;
import java.util.List;

/** The daemon does not begin a session with this guard. */
public final class RejectedException extends IOException {
  private static final long serialVersionUID = 1L;

  private final String reason;

  RejectedException(String reason, List<String> lines) {
    super(
        lines.isEmpty()
            ? "the site daemon rejected the session: " + reason
            : "the site daemon rejected the session (" + reason + "): " + String.join("; ", lines));
    this.reason = reason;
  }

  /** One word: version, root, instance, server, guard, number, starting or malformed. */
  public String reason() {
    return reason;
  }

  /** Whether the same may be welcome in a moment. */
  public boolean passes() {
    return reason.equals("starting");
  }
}
