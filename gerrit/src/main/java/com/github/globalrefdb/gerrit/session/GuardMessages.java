package com.github.globalrefdb.gerrit.session;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;

/** What a guard says. */
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

  static Message announce(Transaction transaction, Optional<String> by) {
    List<String> lines = new ArrayList<>();
    by.map(GuardMessages::printable).filter(name -> !name.isEmpty()).ifPresent(name -> lines.add("by " + name));
    transaction.moves().forEach(move -> lines.add(move.line()));
    return new Message("announce " + transaction.id() + " " + transaction.limit().toMillis() + " " + transaction.repository(), lines);
  }

  static Message report(Transaction transaction) {
    return Message.of("report " + transaction.id());
  }

  /** A name never lets a transaction fail. */
  private static String printable(String name) {
    String line = name.replaceAll("\\p{Cntrl}|[\\ud800-\\udfff]", " ").strip();
    return line.substring(0, Math.min(line.length(), BY_LIMIT));
  }
}
