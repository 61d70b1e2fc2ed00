package com.github.globalrefdb.gerrit.session;

import com.github.globalrefdb.gerrit.session.RefusedException.Kind;
import com.google.common.flogger.FluentLogger;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * A guard's sessions with the site's daemon, one after the other, and the list of its open transactions. It represents
 * one run of this process, and any number of threads.
 *
 * <p>A creation of a repository is a transaction without refs. It is never listed, and is reported until it is settled.
 *
 * <p>A transaction is on the list from before it is sent until it is refused, settled or given up, or until its thread
 * continues without an answer. A session begins with the transactions that have taken their OK; those that were waiting
 * for an OK in the previous session have been given up by then.
 */
public final class SessionClient implements AutoCloseable {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();
  private static final Duration FIRST_PAUSE = Duration.ofMillis(50);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(2);

  /** How long the first announcement waits for a session, if {@link #begin} was not called. */
  private static final Duration FIRST_SESSION = Duration.ofSeconds(10);

  /** How much longer than the daemon's limit the client waits for an answer. */
  private static final Duration SLACK = Duration.ofSeconds(1);

  private final Path socket;
  private final Duration reportPatience;
  private final LongSupplier clock;
  private final String guard = randomId();
  private final AtomicLong transactions = new AtomicLong();

  // All following fields are guarded by this.
  private final Map<String, Transaction> open = new LinkedHashMap<>();
  private Supplier<Identity> identity;
  private Thread thread;
  private Connection connection;
  private Session session; // null if there is none, or one is beginning
  private IOException trouble; // the reason why there is none
  private long sessions;
  private boolean closed;

  private record Session(Connection connection, Identity identity, Welcome welcome) {
    void send(Message message) throws ProtocolException {
      connection.send(message.encode());
    }
  }

  /**
   * Connects to nothing yet.
   *
   * @param identity the identity with which announcements begin a session, unless {@link #begin} did
   * @param reportPatience how long a thread waits for the settlement of a reported transaction, whatever the session's
   *     state
   */
  public SessionClient(Path socket, Supplier<Identity> identity, Duration reportPatience) {
    this(socket, identity, reportPatience, System::nanoTime);
  }

  /**
   * @param clock like {@link System#nanoTime}; it determines whether the daemon is late or silent
   */
  public SessionClient(Path socket, Supplier<Identity> identity, Duration reportPatience, LongSupplier clock) {
    this.socket = socket;
    this.identity = identity;
    this.reportPatience = reportPatience;
    this.clock = clock;
  }

  private static String randomId() {
    byte[] bytes = new byte[16];
    new SecureRandom().nextBytes(bytes);
    return HexFormat.of().formatHex(bytes);
  }

  /** The ID of this run of the guard. */
  public String guard() {
    return guard;
  }

  /** Whether moves can be announced now. */
  public synchronized boolean hasSession() {
    return session != null;
  }

  /**
   * Begins a session as {@code who}; an earlier one ends. From now on a new session is begun whenever one breaks.
   *
   * @param patience how long to wait for a daemon that is unreachable or starting
   * @throws RejectedException if the daemon does not serve this guard
   * @throws IOException if there is no daemon
   */
  public synchronized Welcome begin(Identity who, Duration patience) throws IOException {
    identity = () -> who;
    trouble = null;
    if (connection != null) {
      connection.cutOff();
    }
    start();
    BooleanSupplier begun = () -> session != null && session.identity() == who;
    BooleanSupplier rejected = () -> trouble instanceof RejectedException e && !e.passes();
    await(clock, patience, () -> begun.getAsBoolean() || rejected.getAsBoolean() || closed);
    if (!begun.getAsBoolean()) {
      throw trouble();
    }
    return session.welcome();
  }

  /**
   * Asks the daemon whether refs may move, and waits for the answer. If this method returns, the refs may move until
   * {@link #report}, which must be called in any case.
   *
   * @param repository its real path
   * @param by the requester, for people
   * @throws RefusedException if no ref may move; then there is nothing to report
   */
  public Transaction announce(Path repository, Optional<String> by, List<Move> moves) throws RefusedException {
    return ask(ensureSession(), Transaction.Subject.MOVES, repository, moves, transaction -> GuardMessages.announce(transaction, by));
  }

  /**
   * Asks the daemon whether a repository may be created, and waits for the answer. If this method returns a
   * transaction, the repository may be created until {@link #report}, which must be called in any case.
   *
   * @param repository the real path that it will have
   * @return empty if the daemon has an earlier version, which is not asked
   * @throws RefusedException if it must not be created; then there is nothing to report
   */
  public Optional<Transaction> create(Path repository) throws RefusedException {
    Session session = ensureSession();
    if (!session.welcome().projects()) {
      return Optional.empty();
    }
    return Optional.of(ask(session, Transaction.Subject.CREATION, repository, List.of(), GuardMessages::create));
  }

  /**
   * Reports that a repository was deleted. A repeated report has no effect.
   *
   * @param repository the real path that it had
   * @param id of the project that it was a copy of
   * @return whether the project is being removed at all sites; false if the daemon has an earlier version, which is not
   *     notified
   * @throws RefusedException if it is not, or, without an answer, if that is unknown
   */
  public boolean deleted(Path repository, String id) throws RefusedException {
    Session session = ensureSession();
    if (!session.welcome().projects()) {
      return false;
    }
    Transaction said =
        ask(session, Transaction.Subject.DELETION, repository, List.of(), transaction -> GuardMessages.deleted(transaction, id));
    synchronized (this) {
      open.remove(said.id());
    }
    return true;
  }

  private interface Question {
    Message about(Transaction transaction) throws ProtocolException;
  }

  /** Sends a request, and waits for the OK. */
  private Transaction ask(Session announcedIn, Transaction.Subject subject, Path repository, List<Move> moves, Question question)
      throws RefusedException {
    Duration limit = announcedIn.welcome().timeout().plus(SLACK);
    String id = Long.toString(transactions.incrementAndGet());
    Transaction transaction = new Transaction(clock, subject, id, repository.toString(), moves, limit);
    ByteBuffer message;
    try {
      message = question.about(transaction).encode();
    } catch (ProtocolException e) {
      throw new RefusedException(Kind.FINAL, "malformed", List.of(e.getMessage() + ": nothing was changed"));
    }
    synchronized (this) {
      if (session != announcedIn) {
        throw broken();
      }
      open.put(transaction.id(), transaction);
      announcedIn.connection().send(message);
    }
    try {
      transaction.awaitOk();
    } catch (RefusedException e) {
      giveUp(transaction, announcedIn);
      throw e;
    }
    return transaction;
  }

  private synchronized Session ensureSession() throws RefusedException {
    if (session == null && trouble == null) { // the first session, which other threads may be waiting for, too
      start();
      await(clock, FIRST_SESSION, () -> session != null || closed || trouble != null && !(trouble instanceof RejectedException e && e.passes()));
    }
    if (session == null) {
      throw new RefusedException(Kind.FINAL, "session", List.of(trouble().getMessage() + ": nothing was changed, try again later"));
    }
    return session;
  }

  private IOException trouble() {
    String what = "the site daemon does not answer at " + socket;
    if (closed) {
      return new IOException("Gerrit is stopping");
    }
    if (trouble == null) {
      return new IOException(what);
    }
    return trouble instanceof RejectedException ? trouble : new IOException(what + " (" + trouble.getMessage() + ")", trouble);
  }

  /**
   * Removes a transaction from the list. If the daemon waits for its report, because the transaction timed out or its
   * OK was listed in this session, the report is sent.
   */
  private synchronized void giveUp(Transaction transaction, Session announcedIn) {
    transaction.finish();
    boolean reports = session != null && (session == announcedIn || transaction.isTaken()) && transaction.subject() != Transaction.Subject.DELETION;
    if (open.get(transaction.id()) != null && reports) {
      sendReport(transaction);
    }
    leave(transaction);
  }

  /**
   * Removes from the list a transaction whose thread continues without an answer. A creation is reported until the
   * daemon answers.
   */
  private void leave(Transaction transaction) {
    if (transaction.subject() != Transaction.Subject.CREATION) {
      open.remove(transaction.id());
    }
  }

  /**
   * Tells the daemon that the thread has finished moving refs, whether it has moved them or not, and waits for the
   * settlement.
   *
   * @return the values of the refs, by ref; empty if the daemon does not answer: then the values that the thread itself
   *     has read count
   */
  public Optional<Map<String, String>> report(Transaction transaction) {
    synchronized (this) {
      transaction.finish();
      if (session != null) {
        sendReport(transaction);
      } // else the next session begins with it on its list, and the report follows
    }
    Optional<Map<String, String>> settled = transaction.awaitSettled(reportPatience);
    synchronized (this) {
      leave(transaction);
    }
    return settled;
  }

  private void sendReport(Transaction transaction) {
    try {
      session.send(GuardMessages.report(transaction));
    } catch (ProtocolException e) {
      throw new IllegalStateException(e);
    }
  }

  private void start() {
    if (thread == null && !closed) {
      thread = new Thread(this::run, "refdb-session");
      thread.setDaemon(true);
      thread.start();
    }
    notifyAll(); // ends the pause between two attempts
  }

  /** Waits until {@code done}, which is checked after each notifyAll. An interrupted thread waits nevertheless. */
  private void await(LongSupplier clock, Duration patience, BooleanSupplier done) {
    boolean interrupted = false;
    long deadline = clock.getAsLong() + patience.toNanos();
    for (long left = patience.toNanos(); left > 0 && !done.getAsBoolean(); left = deadline - clock.getAsLong()) {
      try {
        wait(left / 1_000_000 + 1);
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** The thread of the sessions. */
  private void run() {
    Duration pause = FIRST_PAUSE;
    while (true) {
      boolean began = false;
      try (Connection c = Connection.open(socket, clock)) {
        List<Message> early = beginOn(c);
        began = true;
        handle(early);
        while (true) {
          handle(c.receive());
        }
      } catch (IOException e) {
        ended(e);
      } catch (Throwable e) { // without this thread no ref could move
        ended(new IOException("the session failed: " + e, e));
        logger.atSevere().withCause(e).log("refdb: the session failed");
      }
      pause = began ? FIRST_PAUSE : pause.multipliedBy(2);
      pause = pause.compareTo(LONGEST_PAUSE) < 0 ? pause : LONGEST_PAUSE;
      synchronized (this) {
        Supplier<Identity> who = identity;
        await(System::nanoTime, pause, () -> closed || identity != who);
        if (closed) {
          return;
        }
      }
    }
  }

  /** Begins a session, and returns the messages after the welcome. */
  private List<Message> beginOn(Connection c) throws IOException {
    List<Transaction> known;
    Identity who;
    synchronized (this) {
      if (closed) {
        throw trouble();
      }
      connection = c;
      who = identity.get();
      // Nothing is waiting for an answer: the end of the previous session has given such transactions up.
      known = List.copyOf(open.values());
      List<Transaction> listed = known.stream().filter(t -> t.subject() == Transaction.Subject.MOVES && t.isTaken()).toList();
      c.send(GuardMessages.begin(guard, ++sessions, who, listed).encode());
    }
    List<Message> messages;
    do {
      messages = c.receive();
    } while (messages.isEmpty());
    Message answer = messages.get(0);
    switch (answer.verb()) {
      case "rejected" -> throw new RejectedException("the session", answer.fields(1).get(0), answer.lines());
      case "welcome" -> welcomed(new Session(c, who, Welcome.parse(answer)), known);
      default -> throw unexpected(answer);
    }
    return messages.subList(1, messages.size());
  }

  private synchronized void welcomed(Session begun, List<Transaction> known) {
    session = begun;
    trouble = null;
    // Everything listed has to be reported in this session, including transactions that have ended without an answer meanwhile.
    known.stream().filter(Transaction::isFinished).forEach(this::sendReport);
    logger.atInfo().log("refdb: session %d with the daemon of the site %s", sessions, begun.welcome().site());
    notifyAll();
  }

  private void handle(List<Message> messages) throws IOException {
    for (Message message : messages) {
      handle(message);
    }
  }

  private synchronized void handle(Message message) throws IOException {
    String id = message.fields(2).get(0);
    switch (message.verb()) {
      case "wait" -> known(id).forEach(Transaction::extend);
      case "ok" -> known(id).forEach(Transaction::take);
      case "refused" -> {
        List<String> fields = message.fields(3);
        Kind kind = fields.get(1).equals("retry") ? Kind.RETRY : Kind.FINAL;
        known(id).forEach(t -> t.deny(new RefusedException(kind, fields.get(2), message.lines())));
        open.remove(id);
      }
      case "settled" -> {
        Map<String, String> values = values(message);
        known(id).forEach(t -> t.settle(values));
        open.remove(id);
      }
      default -> throw unexpected(message);
    }
  }

  /** The transaction with this ID, unless it has ended, which the daemon may not know yet. */
  private Stream<Transaction> known(String id) {
    return Stream.ofNullable(open.get(id));
  }

  private static Map<String, String> values(Message message) throws ProtocolException {
    Map<String, String> values = new HashMap<>();
    for (String line : message.lines()) {
      int space = line.indexOf(' ');
      if (space <= 0) {
        throw new ProtocolException("the site daemon settled a ref without a name");
      }
      values.put(line.substring(space + 1), line.substring(0, space));
    }
    return values;
  }

  private static IOException unexpected(Message message) {
    return message.verb().equals("error")
        ? new ProtocolException("the site daemon says: " + message.fields(1).get(0))
        : new ProtocolException("the site daemon said \"" + message.verb() + "\", which is not expected here");
  }

  /**
   * Gives up transactions that are waiting for an OK. Transactions with an OK continue, and are listed in the next
   * session.
   */
  private synchronized void ended(IOException why) {
    if (session != null) {
      logger.atWarning().log("refdb: the session has ended: %s", why.getMessage());
    } else if (trouble == null || !trouble.getMessage().equals(why.getMessage())) {
      logger.atWarning().log("refdb: no session with the site daemon at %s: %s", socket, why.getMessage());
    }
    session = null;
    connection = null;
    trouble = why;
    for (Transaction t : List.copyOf(open.values())) {
      t.deny(broken());
      if (!t.isTaken()) {
        t.finish();
        leave(t);
      }
    }
    notifyAll();
  }

  private static RefusedException broken() {
    String text = "the session with the site daemon broke: nothing was changed, try again";
    return new RefusedException(Kind.FINAL, "session", List.of(text));
  }

  /** Ends the session. The daemon settles its announced transactions when this process has ended. */
  @Override
  public synchronized void close() {
    closed = true;
    if (connection != null) {
      connection.cutOff();
    }
    notifyAll();
  }
}
