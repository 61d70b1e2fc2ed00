package com.github.globalrefdb.gerrit.session;

import java.time.Duration;

/**
 * What the daemon says of itself as it begins a session.
 *
 * @param site the site's name
 * @param timeout an announcement is answered within this
 * @param projects whether it takes the messages about projects: one of an earlier version does not
 */
public record Welcome(String site, Duration timeout, boolean projects) {
  static Welcome parse(Message message) throws ProtocolException {
    String timeout = message.value("timeout");
    try {
      return new Welcome(message.value("site"), Duration.ofMillis(Long.parseLong(timeout)), !message.value("projects").isEmpty());
    } catch (NumberFormatException e) {
      throw new ProtocolException("the site daemon's timeout is no number: " + timeout);
    }
  }
}
