package com.github.globalrefdb.gerrit.moves;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.github.globalrefdb.gerrit.moves.Action.ConfigMoved;
import com.github.globalrefdb.gerrit.moves.Action.EverythingMoved;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon;
import com.github.globalrefdb.gerrit.session.ScriptedDaemon.Session;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FollowerTest {
  private static final String GUARD = "0123456789abcdef0123456789abcdef";
  private static final Project.NameKey APP = Project.nameKey("app");

  @TempDir Path directory;
  private Path socket;
  private Optional<PlaceFile> file;
  private ScriptedDaemon daemon;
  private Pending pending;
  private Workers workers;
  private Follower follower;
  private final BlockingQueue<Action> done = new LinkedBlockingQueue<>();
  private final Set<Action> failing = ConcurrentHashMap.newKeySet();
  private final Semaphore failures = new Semaphore(0);
  private final AtomicLong clock = new AtomicLong(); // of what is pending
  private final ComparedCount count = new ComparedCount();
  private volatile CountDownLatch comparison = new CountDownLatch(0);

  @BeforeEach
  void setUp() throws IOException {
    socket = directory.resolve("s");
    file = Optional.of(new PlaceFile(directory.resolve("refdb/moves"), Optional.of(Duration.ofMinutes(6))));
    daemon = new ScriptedDaemon(socket);
  }

  @AfterEach
  void tearDown() throws Exception {
    stop();
    daemon.close();
  }

  private void start() {
    pending = new Pending(clock::get);
    workers = new Workers(pending, this::run, new Failures());
    Classifier classifier = new Classifier(directory -> Optional.of(APP), "All-Users", GUARD);
    ComparisonFile compared = new ComparisonFile(directory.resolve("refdb"));
    follower = new Follower(socket, GUARD, classifier, file, compared, pending, new Failures(), count, () -> 0); // the daemon is never silent
    workers.start();
    follower.start();
  }

  private void stop() throws InterruptedException {
    if (follower != null) {
      pending.close();
      follower.stop();
      workers.stop();
    }
  }

  private List<Action> run(Action action) throws Exception {
    if (failing.contains(action)) {
      throw new IOException("as the test says");
    }
    if (action instanceof EverythingMoved) {
      comparison.await();
    }
    done.add(action);
    return List.of();
  }

  private Action next() throws InterruptedException {
    return done.take();
  }

  private void pass(Duration time) {
    clock.addAndGet(time.toNanos());
  }

  private Optional<String> saved() throws IOException {
    Path path = directory.resolve("refdb/moves");
    if (!Files.exists(path)) {
      return Optional.empty();
    }
    List<String> lines = Files.readAllLines(path);
    return Optional.of(lines.get(lines.size() - 1).split(" ")[1]);
  }

  private void begin(String place) throws IOException {
    Files.createDirectories(directory.resolve("refdb"));
    Files.writeString(directory.resolve("refdb/moves"), "committed " + place + "\n");
  }

  private static Action change(int id) {
    return new ChangeMoved(APP, Change.id(id));
  }

  private static String moved(int change) {
    return "- refs/changes/0" + change + "/" + change + "/meta /srv/git/app.git";
  }

  /** Answers with nothing until {@code place} is saved. */
  private void answerUntilSaved(Session session, String place) throws IOException {
    while (!saved().equals(Optional.of(place))) {
      session.send("moves " + session.read().head().split(" ")[1]);
    }
  }

  @Test
  void itBeginsAtTheSavedPlaceAndAsksOn() throws Exception {
    begin("p0");
    start();
    Session session = daemon.accept();
    assertEquals("refdb-moves 1", session.begin().head());
    assertEquals(List.of("guard " + GUARD, "after p0"), session.begin().lines());
    session.send("moves p1", moved(1), GUARD + " refs/meta/config /srv/git/app.git");
    assertEquals("after p1", session.read().head());
    assertEquals(change(1), next());
    session.send("moves p2", "- refs/meta/config /srv/git/app.git");
    assertEquals(new ConfigMoved(APP), next());
    assertEquals("after p2", session.read().head());
    session.send("moves p2");
    answerUntilSaved(session, "p2");
  }

  @Test
  void withoutAPlaceEverythingIsComparedBeforeOneIsSaved() throws Exception {
    comparison = new CountDownLatch(1);
    start();
    Session session = daemon.accept();
    assertEquals("after -", session.begin().lines().get(1));
    session.send("moves p5");
    assertEquals("after p5", session.read().head());
    session.send("moves p6", moved(1));
    assertEquals(change(1), next(), "what comes meanwhile does not wait");
    assertEquals("after p6", session.read().head());
    assertEquals(Optional.empty(), saved());
    comparison.countDown();
    assertEquals(new EverythingMoved(), next());
    session.send("moves p6");
    answerUntilSaved(session, "p6");
  }

  /** A replica has no such file: it leaves indexes as they are that it does not have. */
  @Test
  void withoutAFileEachStartComparesEverything() throws Exception {
    file = Optional.empty();
    for (int i = 0; i < 2; i++) {
      start();
      Session session = daemon.accept();
      assertEquals("after -", session.begin().lines().get(1));
      session.send("moves p1");
      assertEquals(new EverythingMoved(), next());
      session.read();
      session.send("moves p1");
      session.read();
      session.send("moves p2", moved(1));
      assertEquals(change(1), next());
      session.read();
      session.send("moves p2");
      session.read();
      assertEquals(Optional.empty(), saved());
      stop();
    }
  }

  @Test
  void aResetForgetsThePlaceUntilEverythingIsCompared() throws Exception {
    begin("p0");
    comparison = new CountDownLatch(1);
    start();
    Session session = daemon.accept();
    session.send("reset q1");
    assertEquals("after q1", session.read().head());
    assertEquals(Optional.empty(), saved());
    comparison.countDown();
    assertEquals(new EverythingMoved(), next());
    session.send("moves q1");
    answerUntilSaved(session, "q1");
  }

  @Test
  void anOperatorMayHaveEverythingComparedAndSeesWhatCameOfIt() throws Exception {
    begin("p0");
    start();
    Session session = daemon.accept();
    session.send("moves p1", moved(1));
    assertEquals(change(1), next());
    session.read();
    comparison = new CountDownLatch(1);
    Files.writeString(directory.resolve("refdb/compare"), "");
    session.send("moves p2", moved(2));
    assertEquals(change(2), next(), "what was moved does not wait");
    session.read();
    assertEquals("began", compared().split(" ")[0]);
    assertEquals(Optional.empty(), saved(), "a start compares everything");
    count.add(true);
    count.add(false);
    comparison.countDown();
    assertEquals(new EverythingMoved(), next());
    session.send("moves p2");
    answerUntilSaved(session, "p2");
    String[] words = compared().split(" ");
    assertEquals(List.of("ended", "2", "1"), List.of(words[0], words[2], words[3]));
    assertEquals(false, Files.exists(directory.resolve("refdb/compare")), "once is enough");
  }

  private String compared() throws IOException {
    return Files.readString(directory.resolve("refdb/compared")).strip();
  }

  @Test
  void aBrokenConnectionIsOpenedAgainAtTheLastPlace() throws Exception {
    begin("p0");
    start();
    Session session = daemon.accept();
    session.send("moves p1", moved(1));
    assertEquals("after p1", session.read().head());
    session.close();
    Session second = daemon.accept();
    assertEquals("after p1", second.begin().lines().get(1));
  }

  @Test
  void aDaemonThatStartsIsAskedAgain() throws Exception {
    begin("p0");
    start();
    Session session = daemon.accept();
    session.send("rejected starting", "the daemon is starting");
    assertEquals("after p0", daemon.accept().begin().lines().get(1));
  }

  @Test
  void withoutADaemonItWaitsForOne() throws Exception {
    daemon.close();
    begin("p0");
    start();
    daemon = new ScriptedDaemon(socket);
    assertEquals("after p0", daemon.accept().begin().lines().get(1));
  }

  @Test
  void nonsenseEndsTheConnectionAndNothingElse() throws Exception {
    begin("p0");
    start();
    for (String head : List.of("moves ", "welcome", "moves a b", "error what")) {
      daemon.accept().send(head);
    }
    daemon.accept().send("moves p1", "only two");
    assertEquals("after p0", daemon.accept().begin().lines().get(1));
  }

  @Test
  void whatFailsHoldsThePlaceAndNothingElse() throws Exception {
    begin("p0");
    failing.add(change(1));
    start();
    Session session = daemon.accept();
    session.send("moves p1", moved(1));
    session.read();
    failures.acquire();
    session.send("moves p2", moved(2));
    assertEquals(change(2), next());
    session.read();
    assertEquals(Optional.of("p0"), saved());
    failing.clear();
    pass(Pending.FIRST_PAUSE);
    assertEquals(change(1), next(), "it is tried again");
    session.send("moves p2");
    answerUntilSaved(session, "p2");
  }

  @Test
  void whileSomethingIsLeftBehindThereIsNoPlaceSoThatAStartComparesEverything() throws Exception {
    begin("p0");
    failing.add(change(1));
    start();
    Session session = daemon.accept();
    session.send("moves p1", moved(1));
    session.read();
    failures.acquire();
    pass(Pending.HOLDS);
    failures.acquire();
    assertEquals(1, pending.leftBehind());
    session.send("moves p2", moved(2));
    session.read();
    assertEquals(change(2), next());
    session.send("moves p2");
    session.read();
    assertEquals(Optional.empty(), saved());
    failing.clear();
    pass(Pending.LONGEST_PAUSE);
    assertEquals(change(1), next());
    session.send("moves p2");
    answerUntilSaved(session, "p2");
  }

  @Test
  void namesThatAreNotUtf8StopNothing() throws Exception {
    begin("p0");
    start();
    Session session = daemon.accept();
    session.sendBytes("moves p1\n- refs/heads/\u00e9t\u00e9 /srv/git/\u00e9.git\n- refs/changes/01/1/meta /srv/git/a.git\n\n".getBytes(ISO_8859_1));
    assertEquals("after p1", session.read().head());
    assertEquals(change(1), nextChange());
  }

  private Action nextChange() throws InterruptedException {
    Action action = next();
    while (!(action instanceof ChangeMoved)) {
      action = next();
    }
    return action;
  }

  /** Tells of those alone. */
  private final class Failures implements Progress {
    @Override
    public void applied() {}

    @Override
    public void failed() {
      failures.release();
    }

    @Override
    public void reset() {}
  }
}
