package com.github.globalrefdb.gerrit.session;

import java.io.IOException;

/** A message that was received, or was to be sent, does not conform to the protocol. */
final class ProtocolException extends IOException {
  private static final long serialVersionUID = 1L;

  ProtocolException(String message) {
    super(message);
  }
}
