package com.github.globalrefdb.gerrit.session;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Parses messages from the incoming bytes, in pieces of any length. */
final class MessageParser {
  private final int limit;
  private final CodingErrorAction notUtf8;
  private final List<String> lines = new ArrayList<>();
  private byte[] line = new byte[256];
  private int length; // of the line so far
  private int size; // of the message so far

  MessageParser() {
    this(Message.LIMIT);
  }

  MessageParser(int limit) {
    this(limit, CodingErrorAction.REPORT);
  }

  private MessageParser(int limit, CodingErrorAction notUtf8) {
    this.limit = limit;
    this.notUtf8 = notUtf8;
  }

  /** A decoder that replaces invalid UTF-8: names of refs and directories may contain any bytes. */
  static MessageParser lenient() {
    return new MessageParser(Message.LIMIT, CodingErrorAction.REPLACE);
  }

  /** Takes all of {@code bytes}, and returns the messages that end in them. */
  List<Message> feed(ByteBuffer bytes) throws ProtocolException {
    List<Message> messages = new ArrayList<>();
    while (bytes.hasRemaining()) {
      byte b = bytes.get();
      if (++size > limit) {
        throw new ProtocolException("the site daemon sent a message of more than " + limit + " bytes");
      }
      if (b != '\n') {
        add(b);
      } else if (length > 0) {
        lines.add(decode());
      } else if (lines.isEmpty()) {
        throw new ProtocolException("the site daemon sent an empty message");
      } else {
        messages.add(new Message(lines.get(0), lines.subList(1, lines.size())));
        lines.clear();
        size = 0;
      }
    }
    return messages;
  }

  private void add(byte b) {
    if (length == line.length) {
      line = Arrays.copyOf(line, 2 * length);
    }
    line[length++] = b;
  }

  private String decode() throws ProtocolException {
    try {
      String text = UTF_8.newDecoder().onMalformedInput(notUtf8).onUnmappableCharacter(notUtf8).decode(ByteBuffer.wrap(line, 0, length)).toString();
      length = 0;
      return text;
    } catch (CharacterCodingException e) {
      throw new ProtocolException("the site daemon sent text that is not UTF-8");
    }
  }
}
