package com.github.globalrefdb.gerrit.session;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.util.ArrayList;
import java.util.List;

/**
 * One message of a session: a head line, then lines. On the wire an empty line ends the message, so no line is empty.
 */
record Message(String head, List<String> lines) {
  /** The maximum size of a message, in bytes. */
  static final int LIMIT = 64 << 20;

  Message {
    lines = List.copyOf(lines);
  }

  static Message of(String head) {
    return new Message(head, List.of());
  }

  /** The first word of the head. */
  String verb() {
    int space = head.indexOf(' ');
    return space < 0 ? head : head.substring(0, space);
  }

  /** The fields after the verb, at most {@code n}: the last one is the rest of the head. Missing fields are "". */
  List<String> fields(int n) {
    List<String> fields = new ArrayList<>(n);
    String rest = head;
    for (int i = 0; i < n; i++) {
      int space = rest.indexOf(' ');
      rest = space < 0 ? "" : rest.substring(space + 1);
      int end = i == n - 1 ? -1 : rest.indexOf(' ');
      fields.add(end < 0 ? rest : rest.substring(0, end));
    }
    return fields;
  }

  /** The value of the first line {@code KEY VALUE}, or "". */
  String value(String key) {
    for (String line : lines) {
      if (line.startsWith(key + " ")) {
        return line.substring(key.length() + 1);
      }
    }
    return "";
  }

  /**
   * @throws ProtocolException if a line can't be sent: it is empty, has a line break or half of a surrogate pair; or if the
   *     message is too long
   */
  ByteBuffer encode() throws ProtocolException {
    StringBuilder text = new StringBuilder();
    append(text, head);
    for (String line : lines) {
      append(text, line);
    }
    text.append('\n');
    ByteBuffer bytes;
    try {
      bytes = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
    } catch (CharacterCodingException e) {
      throw new ProtocolException("a message with text that is not Unicode");
    }
    if (bytes.remaining() > LIMIT) {
      throw new ProtocolException("a message of " + bytes.remaining() + " bytes: at most " + LIMIT + " can be sent");
    }
    return bytes;
  }

  private static void append(StringBuilder text, String line) throws ProtocolException {
    if (line.isEmpty() || line.indexOf('\n') >= 0) {
      throw new ProtocolException("a message with a line that is empty or has a line break");
    }
    text.append(line).append('\n');
  }
}
