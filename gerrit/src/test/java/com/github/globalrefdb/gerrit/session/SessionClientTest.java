package com.github.globalrefdb.gerrit.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.globalrefdb.gerrit.session.RefusedException.Kind;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon.Request;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon.Session;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SessionClientTest {
  private static final Duration PATIENCE = Duration.ofMinutes(10);
  private static final Path REPOSITORY = Path.of("/srv/git/a.git");
  private static final List<Move> MOVES = List.of(new Move("00", "11", "refs/heads/main"));
  private static final Identity SERVER = new Identity("Gerrit 3.9.4", Path.of("/srv/git"), Optional.of("eu-1"), Optional.of("uuid"));
  private static final Identity OFFLINE = new Identity("Gerrit 3.9.4 offline", Path.of("/srv/git"), Optional.empty(), Optional.empty());

  @TempDir Path dir;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private ScriptedDaemon daemon;
  private SessionClient client;

  /** It stands: however slow all is, the daemon is never late or silent. */
  private final AtomicLong clock = new AtomicLong();

  @BeforeEach
  void open() throws IOException {
    daemon = new ScriptedDaemon(dir.resolve("s"));
    client = client(PATIENCE);
  }

  private SessionClient client(Duration reportPatience) {
    return new SessionClient(dir.resolve("s"), () -> OFFLINE, reportPatience, clock::get);
  }

  @AfterEach
  void close() throws IOException {
    client.close();
    daemon.close();
    threads.shutdownNow();
  }

  private Future<Transaction> announce() {
    return threads.submit(() -> client.announce(REPOSITORY, Optional.of("Ann <ann@example.com>"), MOVES));
  }

  private Future<Optional<Map<String, String>>> report(Transaction transaction) {
    return threads.submit(() -> client.report(transaction));
  }

  private Session begin() throws Exception {
    Future<Welcome> begun = threads.submit(() -> client.begin(SERVER, PATIENCE));
    Session session = daemon.welcome();
    begun.get();
    return session;
  }

  private static RefusedException refusal(Future<?> future) {
    return (RefusedException) assertThrows(ExecutionException.class, future::get).getCause();
  }

  @Test
  void aSessionSaysWhoBeginsIt() throws Exception {
    Session session = begin();
    assertEquals("refdb-session 1", session.begin().head());
    List<String> lines = session.begin().lines();
    assertTrue(lines.get(0).matches("guard [0-9a-f]{32}"), lines.get(0));
    assertEquals(
        List.of("number 1", "name Gerrit 3.9.4", "root /srv/git", "instance eu-1", "server uuid", "ready"), lines.subList(1, lines.size()));
  }

  @Test
  void anOfflineProgramBeginsOneWithItsFirstTransaction() throws Exception {
    Future<Transaction> announced = announce();
    Session session = daemon.welcome();
    assertEquals(List.of("number 1", "name Gerrit 3.9.4 offline", "root /srv/git", "ready"), session.begin().lines().subList(1, 5));
    session.send("ok " + session.read().transaction());
    announced.get();
  }

  @Test
  void aTransactionIsAnnouncedAndReported() throws Exception {
    Session session = begin();
    Future<Transaction> announced = announce();
    assertEquals(
        new Request("announce 1 3000 /srv/git/a.git", List.of("by Ann <ann@example.com>", "00 11 refs/heads/main")), session.read());
    session.send("ok 1");
    Future<Optional<Map<String, String>>> reported = report(announced.get());
    assertEquals("report 1", session.read().head());
    session.send("settled 1", "11 refs/heads/main");
    assertEquals(Optional.of(Map.of("refs/heads/main", "11")), reported.get());
    assertEquals("announce 2", announceHead(session));
  }

  private String announceHead(Session session) throws IOException {
    announce();
    String head = session.read().head();
    return head.substring(0, head.indexOf(' ', 10));
  }

  @Test
  void aRefusalHasItsKindAndItsLines() throws Exception {
    Session session = begin();
    Future<Transaction> announced = announce();
    session.read();
    session.send("refused 1 retry behind", "this site is behind", "retry");
    assertEquals(Kind.RETRY, refusal(announced).kind());
    assertEquals("behind", refusal(announced).reason());
    assertEquals(List.of("this site is behind", "retry"), refusal(announced).lines());

    announced = announce();
    session.read();
    session.send("refused 2 final unknown");
    assertEquals(Kind.FINAL, refusal(announced).kind());
    assertEquals(List.of("refused by the site daemon: unknown"), refusal(announced).lines());
  }

  @Test
  void whatIsGivenUpIsReportedAndALateOkIsVoid() throws Exception {
    Future<Welcome> begun = threads.submit(() -> client.begin(SERVER, PATIENCE));
    Session session = daemon.welcome(1);
    begun.get();
    Future<Transaction> announced = announce();
    session.read();
    clock.addAndGet(Duration.ofMillis(1001).toNanos());
    assertEquals("timeout", refusal(announced).reason());
    assertEquals("report 1", session.read().head());
    session.send("ok 1");
    session.send("settled 1", "00 refs/heads/main");
    session.close();
    assertEquals("ready", last(daemon.welcome().begin())); // no list
  }

  private static String last(Request begin) {
    List<String> lines = begin.lines();
    assertTrue(lines.stream().noneMatch(line -> line.startsWith("open ")), lines.toString());
    return lines.get(lines.size() - 1);
  }

  @Test
  void whatWaitsWhenASessionBreaksIsGivenUp() throws Exception {
    Session session = begin();
    Future<Transaction> announced = announce();
    session.read();
    session.close();
    assertEquals("session", refusal(announced).reason());
    assertEquals(Kind.FINAL, refusal(announced).kind());
    Session next = daemon.welcome();
    assertEquals("number 2", next.begin().lines().get(1));
    assertEquals("ready", last(next.begin()));
  }

  @Test
  void whatHasItsOkIsOnTheListOfTheNextSessionAndIsReportedThere() throws Exception {
    Session session = begin();
    Future<Transaction> announced = announce();
    session.read();
    session.send("ok 1");
    Transaction transaction = announced.get();
    session.close();
    Session next = daemon.welcome();
    List<String> lines = next.begin().lines();
    assertEquals(List.of("open 1 /srv/git/a.git", "00 11 refs/heads/main", "ready"), lines.subList(lines.size() - 3, lines.size()));
    Future<Optional<Map<String, String>>> reported = report(transaction);
    assertEquals("report 1", next.read().head());
    next.send("settled 1", "11 refs/heads/main");
    assertEquals(Optional.of(Map.of("refs/heads/main", "11")), reported.get());
  }

  @Test
  void aReportThatWasNotAnsweredIsRepeatedInTheNextSession() throws Exception {
    Session session = begin();
    Future<Transaction> announced = announce();
    session.read();
    session.send("ok 1");
    Future<Optional<Map<String, String>>> reported = report(announced.get());
    assertEquals("report 1", session.read().head());
    session.close();
    Session next = daemon.welcome();
    assertTrue(next.begin().lines().contains("open 1 /srv/git/a.git"));
    assertEquals("report 1", next.read().head());
    next.send("settled 1"); // it was settled by the list
    assertEquals(Optional.empty(), reported.get());
  }

  @Test
  void aThreadThatEndsWithoutASessionIsOnNoList() throws Exception {
    client = client(Duration.ofMillis(300));
    Session session = begin();
    Future<Transaction> announced = announce();
    session.read();
    session.send("ok 1");
    Transaction transaction = announced.get();
    daemon.close();
    session.close();
    assertEquals(Optional.empty(), report(transaction).get());
    daemon = new ScriptedDaemon(dir.resolve("s"));
    assertEquals("ready", last(daemon.welcome().begin()));
  }

  @Test
  void whatWasListedIsReportedAlsoIfItEndedBeforeTheWelcome() throws Exception {
    client = client(Duration.ofMillis(300));
    Session session = begin();
    Future<Transaction> announced = announce();
    session.read();
    session.send("ok 1");
    Transaction transaction = announced.get();
    session.close();
    Session next = daemon.accept();
    assertTrue(next.begin().lines().contains("open 1 /srv/git/a.git"));
    assertEquals(Optional.empty(), report(transaction).get());
    next.send("welcome", "site eu", "root /srv/git", "timeout 2000");
    assertEquals("report 1", next.read().head());
  }

  @Test
  void withoutADaemonAllIsRefusedAtOnce() throws Exception {
    daemon.close();
    RefusedException e = refusal(announce());
    assertEquals("session", e.reason());
    assertTrue(e.getMessage().contains("does not answer at " + dir.resolve("s")), e.getMessage());
    SessionClient impatient = new SessionClient(dir.resolve("s"), () -> OFFLINE, PATIENCE);
    assertThrows(IOException.class, () -> impatient.begin(SERVER, Duration.ofMillis(200)));
    impatient.close();
  }

  @Test
  void aRejectionSaysWhy() throws Exception {
    Future<Welcome> begun = threads.submit(() -> client.begin(SERVER, PATIENCE));
    daemon.accept().send("rejected starting");
    daemon.accept().send("rejected root", "the root of this site is /srv/other");
    RejectedException e = (RejectedException) assertThrows(ExecutionException.class, begun::get).getCause();
    assertEquals("root", e.reason());
    assertTrue(e.getMessage().endsWith("the root of this site is /srv/other"), e.getMessage());
    assertTrue(refusal(announce()).getMessage().contains("the root of this site is /srv/other"));
  }

  @Test
  void anotherIdentityBeginsAnotherSession() throws Exception {
    Future<Transaction> announced = announce();
    Session offline = daemon.welcome();
    offline.send("ok " + offline.read().transaction());
    announced.get();
    Session session = begin();
    assertEquals(List.of("number 2", "name Gerrit 3.9.4"), session.begin().lines().subList(1, 3));
    assertEquals(offline.begin().lines().get(0), session.begin().lines().get(0));
    assertTrue(session.begin().lines().contains("open 1 /srv/git/a.git"));
  }

  /** Returns once the client knows of the session. */
  private Session welcomeAgain() throws IOException {
    Session session = daemon.welcome();
    session.send("ping");
    assertEquals("pong", session.read().head());
    return session;
  }

  private Future<Optional<Transaction>> create() {
    return threads.submit(() -> client.create(REPOSITORY));
  }

  @Test
  void aCreationIsAskedForAndReported() throws Exception {
    Session session = begin();
    Future<Optional<Transaction>> asked = create();
    assertEquals(new Request("create 1 3000 /srv/git/a.git", List.of()), session.read());
    session.send("ok 1");
    Future<Optional<Map<String, String>>> reported = report(asked.get().get());
    assertEquals("report 1", session.read().head());
    session.send("settled 1");
    reported.get();
    session.close();
    assertEquals("ready", last(daemon.welcome().begin()));
  }

  @Test
  void aCreationMayBeRefused() throws Exception {
    Session session = begin();
    Future<Optional<Transaction>> asked = create();
    session.read();
    session.send("refused 1 final exists", "the project a exists already");
    assertEquals(List.of("the project a exists already"), refusal(asked).lines());
    assertEquals("announce 2", announceHead(session)); // nothing is reported
  }

  @Test
  void aCreationIsOnNoListAndReportedUntilThatIsAnswered() throws Exception {
    client = client(Duration.ofMillis(100));
    Session session = begin();
    Future<Optional<Transaction>> asked = create();
    session.read();
    session.send("ok 1");
    Transaction creation = asked.get().get();
    session.close();
    session = daemon.welcome();
    assertEquals("ready", last(session.begin()));
    report(creation).get(); // its thread goes on
    for (int i = 0; i < 2; i++) {
      assertEquals("report 1", session.read().head());
      session.close();
      session = daemon.welcome();
      assertEquals("ready", last(session.begin()));
    }
    assertEquals("report 1", session.read().head());
    session.send("settled 1");
    assertEquals("announce 2", announceHead(session));
    session.close();
    session = welcomeAgain();
    assertEquals("announce 3", announceHead(session));
  }

  @Test
  void aCreationThatIsGivenUpIsReportedInTheNextSession() throws Exception {
    Session session = begin();
    Future<Optional<Transaction>> asked = create();
    session.read();
    session.close();
    assertEquals("session", refusal(asked).reason());
    session = daemon.welcome();
    assertEquals("ready", last(session.begin()));
    assertEquals("report 1", session.read().head());
  }

  @Test
  void aDeletionIsSaidAndNotReported() throws Exception {
    Session session = begin();
    Future<Boolean> told = threads.submit(() -> client.deleted(REPOSITORY, "ID"));
    assertEquals(new Request("deleted 1 3000 /srv/git/a.git", List.of("id ID")), session.read());
    session.send("ok 1");
    assertTrue(told.get());
    told = threads.submit(() -> client.deleted(REPOSITORY, "ID"));
    session.read();
    session.close();
    assertEquals("session", refusal(told).reason());
    session = welcomeAgain();
    assertEquals("announce 3", announceHead(session));
  }

  @Test
  void aDaemonOfAnEarlierVersionIsNotAskedAboutProjects() throws Exception {
    Future<Welcome> begun = threads.submit(() -> client.begin(SERVER, PATIENCE));
    Session session = daemon.accept();
    session.send("welcome", "site eu", "root /srv/git", "timeout 2000");
    begun.get();
    assertEquals(Optional.empty(), create().get());
    assertEquals(false, client.deleted(REPOSITORY, "ID"));
    assertEquals("announce 1", announceHead(session));
  }

  @Test
  void aPingIsAnswered() throws Exception {
    Session session = begin();
    session.send("ping");
    assertEquals("pong", session.read().head());
  }

  @Test
  void anInterruptedThreadBreaksNothing() throws Exception {
    daemon.serve(request -> List.of((request.verb().equals("announce") ? "ok " : "settled ") + request.transaction()));
    Callable<Boolean> interrupted =
        () -> {
          Thread.currentThread().interrupt();
          client.report(client.announce(REPOSITORY, Optional.empty(), MOVES));
          return Thread.interrupted();
        };
    client.begin(SERVER, PATIENCE);
    assertTrue(threads.submit(interrupted).get());
    assertTrue(threads.submit(interrupted).get());
  }

  @Test
  void twoGuardsHaveTwoNames() throws Exception {
    Session one = begin();
    client.close();
    client = client(PATIENCE);
    assertNotEquals(one.begin().lines().get(0), begin().begin().lines().get(0));
  }

  @Test
  void allThatAnnounceFirstWaitForTheFirstSession() throws Exception {
    List<Future<Transaction>> announced = List.of(announce(), announce(), announce());
    Session session = daemon.welcome();
    for (int i = 0; i < 3; i++) {
      session.send("ok " + session.read().transaction());
    }
    for (Future<Transaction> future : announced) {
      future.get();
    }
  }

  /**
   * Many threads, and sessions that break at any moment: no transaction moves without an OK, and what has one is listed or
   * reported. Each thread tries until it has moved its share, which takes more messages than any one session lets through.
   */
  @Test
  void manyThreadsAndSessionsThatBreak() throws Exception {
    Set<String> allowed = ConcurrentHashMap.newKeySet(); // OK was sent, and the end has not been heard
    Set<String> moving = ConcurrentHashMap.newKeySet(); // by the threads
    List<String> faults = new ArrayList<>();
    Thread server = new Thread(() -> breakingDaemon(allowed, moving, faults));
    server.setDaemon(true);
    server.start();
    client.begin(SERVER, PATIENCE);

    List<Future<?>> workers = new ArrayList<>();
    for (int i = 0; i < 16; i++) {
      workers.add(threads.submit(() -> work(allowed, moving, faults)));
    }
    for (Future<?> worker : workers) {
      worker.get();
    }
    synchronized (faults) {
      assertEquals(List.of(), faults);
    }
  }

  private Void work(Set<String> allowed, Set<String> moving, List<String> faults) throws InterruptedException {
    for (int moved = 0; moved < 25; ) {
      try {
        Transaction transaction = client.announce(REPOSITORY, Optional.empty(), MOVES);
        moving.add(transaction.id());
        if (!allowed.contains(transaction.id())) {
          fault(faults, transaction.id() + " moves without an OK");
        }
        Thread.yield();
        moving.remove(transaction.id());
        client.report(transaction);
        moved++;
      } catch (RefusedException e) {
        Thread.sleep(1); // there may be no session for some 50 ms
      }
    }
    return null;
  }

  private static void fault(List<String> faults, String what) {
    synchronized (faults) {
      faults.add(what);
    }
  }

  private void breakingDaemon(Set<String> allowed, Set<String> moving, List<String> faults) {
    Random random = new Random(1);
    while (true) {
      try (Session session = daemon.accept()) {
        Set<String> listed = ConcurrentHashMap.newKeySet();
        session.begin().lines().stream().filter(line -> line.startsWith("open ")).forEach(line -> listed.add(line.split(" ")[1]));
        for (String id : allowed) {
          if (moving.contains(id) && !listed.contains(id)) {
            fault(faults, id + " moves, and is not listed");
          }
        }
        allowed.retainAll(listed);
        session.send("welcome", "site eu", "root /srv/git", "timeout 60000");
        for (int left = random.nextInt(200); left > 0; left--) {
          Request request = session.read();
          String id = request.transaction();
          if (request.verb().equals("announce")) {
            allowed.add(id);
            session.send("ok " + id);
          } else {
            if (moving.contains(id)) {
              fault(faults, id + " moves after its report");
            }
            allowed.remove(id);
            session.send("settled " + id, "11 refs/heads/main");
          }
        }
      } catch (IOException e) {
        if (e instanceof ClosedChannelException) {
          return;
        }
      }
    }
  }
}
