package com.github.globalrefdb.gerrit.session;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;

/** The messages of a guard. */
final class GuardMessages {
  private static final int BY_LIMIT = 200;

  private GuardMessages() {}

  /**
   * @param open the transactions that have taken their OK and have not ended
   */
  static Message begin(String guard, long number, Identity identity, Collection<Transaction> open) {
    List<String> lines = new ArrayList<>();
    lines.add("guard " + guard);
    lines.add("number " + number);
    lines.addAll(identity.lines());
    for (Transaction transaction : open) {
      lines.add("open " + transaction.id() + " " + transaction.repository());
      transaction.moves().forEach(move -> lines.add(move.line()));
    }
    lines.add("ready");
    return new Message("refdb-session 1", lines);
  }

  /**
   * @throws ProtocolException if the daemon would end the session over a ref's name
   */
  static Message announce(Transaction transaction, Optional<String> by) throws ProtocolException {
    for (Move move : transaction.moves()) {
      for (String word : List.of(move.oldValue(), move.newValue(), move.ref())) {
        if (word.isEmpty() || word.chars().anyMatch(c -> c <= ' ' || c == 0x7f)) {
          throw new ProtocolException("a ref with a space or a control character in its name");
        }
      }
    }
    List<String> lines = new ArrayList<>();
    by.map(GuardMessages::printable).filter(name -> !name.isEmpty()).ifPresent(name -> lines.add("by " + name));
    transaction.moves().forEach(move -> lines.add(move.line()));
    return new Message("announce " + head(transaction), lines);
  }

  /** Asks whether a repository may be created. */
  static Message create(Transaction creation) {
    return Message.of("create " + head(creation));
  }

  /**
   * Reports that a repository was deleted.
   *
   * @param id the ID of the project that it was a copy of
   */
  static Message deleted(Transaction deletion, String id) {
    return new Message("deleted " + head(deletion), List.of("id " + id));
  }

  private static String head(Transaction transaction) {
    return transaction.id() + " " + transaction.limit().toMillis() + " " + transaction.repository();
  }

  static Message report(Transaction transaction) {
    return Message.of("report " + transaction.id());
  }

  /** A user's name never makes a transaction fail. */
  private static String printable(String name) {
    String start = name.substring(0, Math.min(name.length(), BY_LIMIT));
    return start.replaceAll("\\p{Cntrl}|[\\ud800-\\udfff]", " ").strip();
  }
}
