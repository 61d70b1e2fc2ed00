package com.github.globalrefdb.gerrit.session;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class MessageTest {
  private static ByteBuffer bytes(String text) {
    return ByteBuffer.wrap(text.getBytes(UTF_8));
  }

  @Test
  void messagesArriveInPiecesOfAnyLength() throws IOException {
    List<Message> sent = List.of(Message.of("ping"), new Message("settled 7", List.of("00 refs/heads/ä", "11 refs/heads/b")));
    String text = "ping\n\nsettled 7\n00 refs/heads/ä\n11 refs/heads/b\n\n";
    byte[] all = text.getBytes(UTF_8);
    for (int size = 1; size <= all.length; size++) {
      MessageParser parser = new MessageParser();
      List<Message> received = new ArrayList<>();
      for (int at = 0; at < all.length; at += size) {
        received.addAll(parser.feed(ByteBuffer.wrap(all, at, Math.min(size, all.length - at))));
      }
      assertEquals(sent, received, "in pieces of " + size);
    }
  }

  @Test
  void whatIsSentIsWhatIsParsed() throws IOException {
    Message message = new Message("announce 1 500 /srv/git/ä b.git", List.of("00 11 refs/heads/main"));
    assertEquals(List.of(message), new MessageParser().feed(message.encode()));
  }

  @Test
  void whatIsNoMessageEndsTheSession() {
    assertThrows(ProtocolException.class, () -> new MessageParser().feed(bytes("\n")));
    assertThrows(ProtocolException.class, () -> new MessageParser(8).feed(bytes("settled 7\n\n")));
    assertThrows(ProtocolException.class, () -> new MessageParser().feed(ByteBuffer.wrap(new byte[] {(byte) 0xff, '\n', '\n'})));
  }

  @Test
  void theLimitIsOfEachMessage() throws IOException {
    assertEquals(3, new MessageParser(6).feed(bytes("ping\n\nping\n\nping\n\n")).size());
  }

  @Test
  void whatCannotBeSentIsRefused() {
    for (String line : List.of("", "two\nlines", "half \ud800 of a pair", "x".repeat(Message.LIMIT))) {
      assertThrows(ProtocolException.class, () -> new Message("report 1", List.of(line)).encode());
      assertThrows(ProtocolException.class, () -> Message.of(line).encode());
    }
  }

  @Test
  void theLastFieldHasTheRest() {
    Message message = Message.of("wait 7 objects are stored");
    assertEquals("wait", message.verb());
    assertEquals(List.of("7", "objects are stored"), message.fields(2));
    assertEquals(List.of("7", "objects", "are stored"), message.fields(3));
    assertEquals(List.of("", ""), Message.of("ping").fields(2));
  }
}
