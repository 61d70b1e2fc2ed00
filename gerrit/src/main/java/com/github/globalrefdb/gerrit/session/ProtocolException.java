package com.github.globalrefdb.gerrit.session;

import java.io.IOException;

/** What was sent, or was to be sent, is no message of the protocol. */
final class ProtocolException extends IOException {
  private static final long serialVersionUID = 1L;

  ProtocolException(String message) {
    super(message);
  }
}
