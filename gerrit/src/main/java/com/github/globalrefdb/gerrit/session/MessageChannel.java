package com.github.globalrefdb.gerrit.session;

import static java.nio.channels.SelectionKey.OP_READ;
import static java.nio.channels.SelectionKey.OP_WRITE;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.LongSupplier;
import jdk.net.ExtendedSocketOptions;

/**
 * Messages to and from the daemon. Only the thread that calls {@link #receive} touches the channel, because an
 * interrupted thread that touches a channel closes it for all.
 */
final class MessageChannel implements Closeable {
  private static final long WAIT_MS = 1000;

  private final SocketChannel channel;
  private final Selector selector;
  private final SelectionKey key;
  private final Queue<ByteBuffer> outgoing = new ConcurrentLinkedQueue<>();
  private final ByteBuffer buffer = ByteBuffer.allocate(64 << 10);
  private final MessageParser parser;
  private final LongSupplier clock;
  private volatile boolean cutOff;
  private boolean hasHeard;
  private long heard;
  private long said;

  private MessageChannel(SocketChannel channel, Selector selector, MessageParser parser, LongSupplier clock) throws IOException {
    this.channel = channel;
    this.selector = selector;
    this.parser = parser;
    this.clock = clock;
    this.heard = clock.getAsLong();
    this.said = heard;
    this.key = channel.register(selector, OP_READ);
  }

  /**
   * @param clock like {@link System#nanoTime}
   */
  static MessageChannel open(Path socket, MessageParser parser, LongSupplier clock) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      channel.connect(UnixDomainSocketAddress.of(socket));
      checkPeer(socket, channel);
      channel.configureBlocking(false);
      return new MessageChannel(channel, Selector.open(), parser, clock);
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** No other process may pose as the daemon. The daemon checks the guard in the same way. */
  private static void checkPeer(Path socket, SocketChannel channel) throws IOException {
    UserPrincipal peer = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
    UserPrincipal self = Files.getOwner(Path.of("/proc/self"));
    if (!peer.equals(self) && !peer.getName().equals("root")) {
      throw new IOException(socket + " is served by the user " + peer.getName() + ": the site daemon must run as the user of this process");
    }
  }

  /** Queues a message for sending. May be called by any thread. */
  void send(ByteBuffer message) {
    outgoing.add(message);
    selector.wakeup();
  }

  /** Makes {@link #receive} throw. May be called by any thread. */
  void cutOff() {
    cutOff = true;
    selector.wakeup();
  }

  /** The clock's time of the last incoming data, or of the opening if there was none. */
  long heard() {
    return heard;
  }

  boolean hasHeard() {
    return hasHeard;
  }

  /** The clock's time of the last sent data. */
  long said() {
    return said;
  }

  /**
   * Sends queued messages, and waits a second for incoming ones. There may be none.
   *
   * @throws IOException the connection has ended
   */
  List<Message> receive() throws IOException {
    write();
    selector.select(WAIT_MS);
    if (cutOff) {
      throw new IOException("the session was ended here");
    }
    int n = channel.read(buffer);
    if (n < 0) {
      throw new EOFException("the site daemon closed the connection");
    }
    if (n > 0) {
      heard = clock.getAsLong();
      hasHeard = true;
    }
    buffer.flip();
    List<Message> messages = parser.feed(buffer);
    buffer.clear();
    return messages;
  }

  private void write() throws IOException {
    for (ByteBuffer next = outgoing.peek(); next != null; next = outgoing.peek()) {
      if (channel.write(next) > 0) {
        said = clock.getAsLong();
      }
      if (next.hasRemaining()) {
        key.interestOps(OP_READ | OP_WRITE);
        return;
      }
      outgoing.remove();
    }
    key.interestOps(OP_READ);
  }

  @Override
  public void close() throws IOException {
    selector.close();
    channel.close();
  }
}
