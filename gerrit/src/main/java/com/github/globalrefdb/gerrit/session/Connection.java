package com.github.globalrefdb.gerrit.session;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;

/** The connection of a session, which both sides keep alive. Only one thread calls {@link #receive}. */
final class Connection implements Closeable {
  /** The limit of silence of either side: the daemon, too, ends a silent session. */
  private static final Duration PING_AFTER = Duration.ofSeconds(10);

  private static final Duration BROKEN_AFTER = Duration.ofSeconds(20);

  /** The daemon first completes its work for earlier sessions. */
  private static final Duration WELCOME_WITHIN = Duration.ofSeconds(60);

  private final MessageChannel channel;
  private final LongSupplier clock;
  private long pinged;

  private Connection(MessageChannel channel, LongSupplier clock) {
    this.channel = channel;
    this.clock = clock;
    this.pinged = clock.getAsLong();
  }

  static Connection open(Path socket, LongSupplier clock) throws IOException {
    return new Connection(MessageChannel.open(socket, new MessageParser(), clock), clock);
  }

  /** Queues a message for sending. May be called by any thread. */
  void send(ByteBuffer message) {
    channel.send(message);
  }

  /** Makes {@link #receive} throw. May be called by any thread. */
  void cutOff() {
    channel.cutOff();
  }

  /**
   * Sends queued messages, and waits a while for incoming ones. There may be none.
   *
   * @throws IOException the connection has ended
   */
  List<Message> receive() throws IOException {
    List<Message> messages = channel.receive();
    long now = clock.getAsLong();
    Duration patience = channel.hasHeard() ? BROKEN_AFTER : WELCOME_WITHIN;
    if (now - channel.heard() > patience.toNanos()) {
      throw new IOException("the site daemon said nothing for " + patience.toSeconds() + " s");
    }
    ping(now);
    for (Message message : messages) {
      if (message.verb().equals("ping")) {
        send(Message.of("pong").encode());
      }
    }
    return messages.stream().filter(m -> !m.verb().equals("ping") && !m.verb().equals("pong")).toList();
  }

  private void ping(long now) throws IOException {
    long silent = Math.max(now - channel.heard(), now - channel.said());
    if (channel.hasHeard() && silent > PING_AFTER.toNanos() && now - pinged > PING_AFTER.toNanos()) {
      pinged = now;
      send(Message.of("ping").encode());
    }
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
