package com.github.globalrefdb.gerrit.session;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.function.Function;

/** Plays the daemon's side of sessions, as a test says. */
public final class ScriptedDaemon implements AutoCloseable {
  private final Path socket;
  private final ServerSocketChannel server;

  public ScriptedDaemon(Path socket) throws IOException {
    this.socket = socket;
    Files.deleteIfExists(socket);
    server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    server.bind(UnixDomainSocketAddress.of(socket));
  }

  /** Waits for a session, and reads what it begins with. */
  public Session accept() throws IOException {
    return new Session(server.accept());
  }

  public Session welcome() throws IOException {
    return welcome(2000);
  }

  /**
   * @param timeout how long the guard waits for an answer, but for a second, in ms
   */
  public Session welcome(int timeout) throws IOException {
    Session session = accept();
    session.send("welcome", "site eu", "root /srv/git", "lock-wait 100", "timeout " + timeout, "database ok", "projects 1");
    return session;
  }

  /** Welcomes all sessions, and answers each other message by what {@code answers} returns, for as long as this is open. */
  public void serve(Function<Request, List<String>> answers) {
    Thread thread = new Thread(() -> serveAll(answers), "scripted-daemon");
    thread.setDaemon(true);
    thread.start();
  }

  private void serveAll(Function<Request, List<String>> answers) {
    try {
      while (true) {
        Session session = welcome();
        try {
          while (true) {
            List<String> answer = answers.apply(session.read());
            if (!answer.isEmpty()) {
              session.send(answer.toArray(String[]::new));
            }
          }
        } catch (IOException e) {
          session.close();
        }
      }
    } catch (IOException e) {
      // closed
    }
  }

  @Override
  public void close() throws IOException {
    server.close();
    Files.deleteIfExists(socket);
  }

  /** A message of the guard. */
  public record Request(String head, List<String> lines) {
    public String verb() {
      return head.split(" ")[0];
    }

    public String transaction() {
      return head.split(" ")[1];
    }

    /** Of an announcement. */
    public List<String> moves() {
      return lines.stream().filter(line -> !line.startsWith("by ")).toList();
    }
  }

  /** One session. */
  public static final class Session implements AutoCloseable {
    private final SocketChannel channel;
    private final MessageParser parser = new MessageParser();
    private final Deque<Message> received = new ArrayDeque<>();
    private final Request begin;

    Session(SocketChannel channel) throws IOException {
      this.channel = channel;
      this.begin = read();
    }

    public Request begin() {
      return begin;
    }

    public Request read() throws IOException {
      ByteBuffer buffer = ByteBuffer.allocate(4096);
      while (received.isEmpty()) {
        buffer.clear();
        if (channel.read(buffer) < 0) {
          throw new IOException("the guard closed the session");
        }
        received.addAll(parser.feed(buffer.flip()));
      }
      Message message = received.remove();
      return new Request(message.head(), message.lines());
    }

    public void send(String head, String... lines) throws IOException {
      send(concat(head, lines));
    }

    private static String[] concat(String head, String[] lines) {
      String[] all = new String[lines.length + 1];
      all[0] = head;
      System.arraycopy(lines, 0, all, 1, lines.length);
      return all;
    }

    synchronized void send(String[] all) throws IOException {
      ByteBuffer bytes = new Message(all[0], List.of(all).subList(1, all.length)).encode();
      while (bytes.hasRemaining()) {
        channel.write(bytes);
      }
    }

    /** What is no message that can be written as text. */
    public void sendBytes(byte[] bytes) throws IOException {
      ByteBuffer all = ByteBuffer.wrap(bytes);
      while (all.hasRemaining()) {
        channel.write(all);
      }
    }

    @Override
    public void close() {
      try {
        channel.close();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
