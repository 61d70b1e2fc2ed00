package com.github.globalrefdb.gerrit.session;

import java.time.Duration;

/**
 * The daemon's description of itself at the beginning of a session.
 *
 * @param site the site's name
 * @param timeout the limit within which an announcement is answered
 * @param projects whether the daemon accepts the messages about projects: earlier versions do not
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
