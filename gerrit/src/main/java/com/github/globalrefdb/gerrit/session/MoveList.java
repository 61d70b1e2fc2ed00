package com.github.globalrefdb.gerrit.session;

import com.github.globalrefdb.gerrit.session.MovesAnswer.Moves;
import com.github.globalrefdb.gerrit.session.MovesAnswer.Reset;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.LongSupplier;

/** A connection on which the daemon's list of moves is read. Only one thread makes requests. */
public final class MoveList implements AutoCloseable {
  /** The daemon answers within 10 s, even if there are no moves. */
  private static final Duration ANSWER_WITHIN = Duration.ofSeconds(30);

  private static final String PRESENT = "-";

  private final MessageChannel channel;
  private final String guard;
  private final LongSupplier clock;
  private boolean begun;

  private MoveList(MessageChannel channel, String guard, LongSupplier clock) {
    this.channel = channel;
    this.guard = guard;
    this.clock = clock;
  }

  /**
   * @param guard this run of the guard
   * @param clock like {@link System#nanoTime}
   */
  public static MoveList open(Path socket, String guard, LongSupplier clock) throws IOException {
    return new MoveList(MessageChannel.open(socket, MessageParser.lenient(), clock), guard, clock);
  }

  /**
   * Requests the moves after a place, and waits for the answer. The request acknowledges the previous answer.
   *
   * @param place empty means the present place, without earlier moves
   * @throws RejectedException if the daemon does not answer this guard
   * @throws IOException if the connection has ended
   */
  public MovesAnswer after(Optional<String> place) throws IOException {
    String question = "after " + place.orElse(PRESENT);
    Message message = begun ? Message.of(question) : new Message("refdb-moves 1", List.of("guard " + guard, question));
    begun = true;
    long asked = clock.getAsLong();
    channel.send(message.encode());
    while (true) {
      List<Message> messages = channel.receive();
      if (!messages.isEmpty()) {
        return answer(messages.get(0));
      }
      long now = clock.getAsLong();
      if (now - asked > ANSWER_WITHIN.toNanos() && now - channel.heard() > ANSWER_WITHIN.toNanos()) {
        throw new IOException("the site daemon said nothing for " + ANSWER_WITHIN.toSeconds() + " s");
      }
    }
  }

  private static MovesAnswer answer(Message message) throws IOException {
    String place = message.fields(1).get(0);
    switch (message.verb()) {
      case "moves" -> {
        List<MovedRef> moves = new ArrayList<>();
        for (String line : message.lines()) {
          moves.add(MovedRef.parse(line));
        }
        return new Moves(place(place), moves);
      }
      case "reset" -> {
        return new Reset(place(place));
      }
      case "rejected" -> throw new RejectedException("the list of moves", place, message.lines());
      case "error" -> throw new ProtocolException("the site daemon says: " + place);
      default -> throw new ProtocolException("the site daemon said \"" + message.verb() + "\", which is not expected here");
    }
  }

  private static String place(String place) throws ProtocolException {
    if (place.isEmpty() || place.indexOf(' ') >= 0) {
      throw new ProtocolException("the site daemon sent a place that is no word");
    }
    return place;
  }

  /** Makes {@link #after} throw. May be called by any thread. */
  public void cutOff() {
    channel.cutOff();
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
