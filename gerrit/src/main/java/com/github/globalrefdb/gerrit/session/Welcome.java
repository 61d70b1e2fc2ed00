package com.github.globalrefdb.gerrit.session;

import java.time.Duration;

/**
 * What the daemon says of itself as it begins a session.
 *
 * @param site the site's name
 * @param timeout an announcement is answered within this
 */
public record Welcome(String site, Duration timeout) {
  static Welcome parse(Message message) throws ProtocolException {
    String timeout = message.value("timeout");
    try {
      return new Welcome(message.value("site"), Duration.ofMillis(Long.parseLong(timeout)));
    } catch (NumberFormatException e) {
      throw new ProtocolException("the site daemon's timeout is no number: " + timeout);
    }
  }
}
