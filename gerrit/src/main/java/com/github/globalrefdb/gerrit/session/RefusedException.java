package com.github.globalrefdb.gerrit.session;

import java.io.IOException;
import java.util.List;

/** A transaction must not move its refs: none of them was or will be moved. */
public final class RefusedException extends IOException {
  private static final long serialVersionUID = 1L;

  /**
   * Whether a later attempt may succeed. The daemon has already waited for as long as the site's configuration says.
   */
  public enum Kind {
    RETRY,
    FINAL
  }

  private final Kind kind;
  private final String reason;
  private final List<String> lines;

  /**
   * @param reason one word, the same as in the daemon's metrics
   * @param lines for the user: what happened, to what, and what to do
   */
  public RefusedException(Kind kind, String reason, List<String> lines) {
    super(lines.isEmpty() ? "refused by the site daemon: " + reason : String.join("\n", lines));
    this.kind = kind;
    this.reason = reason;
    this.lines = lines.isEmpty() ? List.of(getMessage()) : List.copyOf(lines);
  }

  public Kind kind() {
    return kind;
  }

  public String reason() {
    return reason;
  }

  public List<String> lines() {
    return lines;
  }
}
