package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.globalrefdb.gerrit.moves.Action.AccountMoved;
import com.github.globalrefdb.gerrit.moves.Action.ChangeMoved;
import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareProject;
import com.github.globalrefdb.gerrit.moves.Action.DirectoryMoved;
import com.github.globalrefdb.gerrit.moves.Action.Postponed;
import com.github.globalrefdb.gerrit.moves.Action.Urgency;
import com.github.globalrefdb.gerrit.moves.Pending.Task;
import com.google.gerrit.entities.Account;
import com.google.gerrit.entities.Change;
import com.google.gerrit.entities.Project;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class PendingTest {
  private static final Action A = change(1);
  private static final Action B = change(2);
  private static final Action ACCOUNT = new AccountMoved(Account.id(1));

  private final AtomicLong clock = new AtomicLong();
  private int probes;
  private final Pending pending = new Pending(clock::get);

  private static Action change(int id) {
    return new ChangeMoved(Project.nameKey("p"), Change.id(id));
  }

  private Task take() throws InterruptedException {
    return pending.take(Urgency.COMPARISON).orElseThrow();
  }

  /** Those that could be done now, in their order: they are done. */
  private List<Action> doAll() throws InterruptedException {
    List<Action> done = new ArrayList<>();
    Action last = new CompareProject(Project.nameKey("probe" + ++probes)); // it is not done, and holds its own place
    pending.add("probe", List.of(last));
    for (Task task = take(); !task.action().equals(last); task = take()) {
      done.add(task.action());
      pending.done(task, List.of());
    }
    return done;
  }

  private void pass(Duration time) {
    clock.addAndGet(time.toNanos());
  }

  private static void awaitState(Thread thread, Thread.State state) {
    while (thread.getState() != state) {
      assertTrue(thread.isAlive());
      Thread.yield();
    }
  }

  @Test
  void whatIsForLaterHoldsNoPlace() throws InterruptedException {
    pending.later(new CheckAgain(A, Duration.ofMinutes(1)));
    pending.add("p1", List.of());
    assertEquals(Optional.of("p1"), pending.done());
    assertEquals(List.of(), doAll());
    pass(Duration.ofMinutes(1));
    assertEquals(List.of(new CheckAgain(A, Duration.ofMinutes(1))), doAll());
  }

  @Test
  void thePlaceIsBehindWhatIsDone() throws InterruptedException {
    pending.add("p1", List.of(A));
    pending.add("p2", List.of(B));
    Task a = take();
    Task b = take();
    assertEquals(Optional.empty(), pending.done());
    pending.done(b, List.of());
    assertEquals(Optional.empty(), pending.done());
    pending.done(a, List.of());
    assertEquals(Optional.of("p2"), pending.done());
  }

  @Test
  void anAnswerWithNothingToDoMovesThePlace() {
    pending.add("p1", List.of());
    assertEquals(Optional.of("p1"), pending.done());
  }

  @Test
  void consequencesHoldThePlace() throws InterruptedException {
    pending.add("p1", List.of(A));
    pending.done(take(), List.of(B));
    assertEquals(Optional.empty(), pending.done());
    pending.done(take(), List.of());
    assertEquals(Optional.of("p1"), pending.done());
  }

  @Test
  void whatWasDoneIsCheckedAgainLaterAndHoldsNothing() throws InterruptedException {
    CheckAgain check = new CheckAgain(A, Duration.ofSeconds(7));
    pending.add("p1", List.of(A));
    pending.done(take(), List.of(check));
    assertEquals(Optional.of("p1"), pending.done());
    assertEquals(List.of(), doAll());
    assertEquals(0, pending.leftBehind());
    pass(check.after());
    assertEquals(List.of(check), doAll());
  }

  @Test
  void whatIsAskedForTwiceIsDoneOnce() throws InterruptedException {
    pending.add("p1", List.of(A));
    pending.add("p2", List.of(A));
    assertEquals(List.of(A), doAll());
    assertEquals(Optional.of("p2"), pending.done());
  }

  @Test
  void whatIsMovedAgainWhileItIsDoneIsDoneAgainAfterwards() throws InterruptedException {
    pending.add("p1", List.of(A));
    Task a = take();
    pending.add("p2", List.of(A, B));
    Task b = take();
    assertEquals(B, b.action(), "never two at the same time");
    pending.done(b, List.of());
    pending.done(a, List.of());
    assertEquals(Optional.of("p1"), pending.done());
    assertEquals(List.of(A), doAll());
    assertEquals(Optional.of("p2"), pending.done());
  }

  @Test
  void whatTakesAccessAwayComesFirst() throws InterruptedException {
    pending.add("p1", List.of(A, B));
    pending.add("p2", List.of(ACCOUNT));
    assertEquals(List.of(ACCOUNT, A, B), doAll());
  }

  @Test
  void aThreadForTheUrgentTakesNothingElse() throws InterruptedException {
    pending.add("p1", List.of(A));
    Thread waits = Thread.currentThread();
    Thread closes =
        new Thread(
            () -> {
              awaitState(waits, Thread.State.WAITING);
              pending.close();
            });
    closes.start();
    assertEquals(Optional.empty(), pending.take(Urgency.ACCESS));
    closes.join();
  }

  @Test
  void whatFailsIsTriedAgainAfterAPause() throws InterruptedException {
    pending.add("p1", List.of(A, B));
    pending.failed(take());
    assertEquals(List.of(B), doAll());
    assertEquals(Optional.empty(), pending.done());
    pass(Pending.FIRST_PAUSE);
    Task again = take();
    assertEquals(A, again.action());
    pending.done(again, List.of());
    assertEquals(Optional.of("p1"), pending.done());
  }

  @Test
  void whatFailsAndIsMovedAgainIsTriedAtOnce() throws InterruptedException {
    pending.add("p1", List.of(A));
    pending.failed(take());
    pending.add("p2", List.of(A));
    assertEquals(List.of(A), doAll());
    assertEquals(Optional.of("p2"), pending.done());
  }

  @Test
  void whatFailsWhileItIsMovedAgainHoldsTheEarlierPlace() throws InterruptedException {
    pending.add("p1", List.of());
    pending.add("p2", List.of(A));
    Task a = take();
    pending.add("p3", List.of(A));
    pending.failed(a);
    assertEquals(Optional.of("p1"), pending.done());
    assertEquals(List.of(A), doAll());
    assertEquals(Optional.of("p3"), pending.done());
  }

  @Test
  void whatKeepsFailingDoesNotHoldThePlaceForEver() throws InterruptedException {
    pending.add("p1", List.of(A));
    Duration failing = Duration.ZERO;
    while (pending.leftBehind() == 0) {
      assertEquals(Optional.empty(), pending.done());
      assertTrue(failing.compareTo(Pending.HOLDS.plus(Pending.LONGEST_PAUSE)) <= 0);
      pending.failed(take());
      pass(Pending.LONGEST_PAUSE);
      failing = failing.plus(Pending.LONGEST_PAUSE);
    }
    assertEquals(Optional.of("p1"), pending.done());
    assertEquals(1, pending.leftBehind());
    assertEquals(List.of(A), doAll(), "it is tried on");
    assertEquals(0, pending.leftBehind());
  }

  @Test
  void whatWasLeftBehindAndIsDoneInTheEndHoldsThePresentPlaceForItsConsequences() throws InterruptedException {
    pending.add("p1", List.of(A));
    pending.failed(take());
    pass(Pending.HOLDS);
    pending.failed(take());
    assertEquals(1, pending.leftBehind());
    pending.add("p2", List.of());
    assertEquals(Optional.of("p2"), pending.done());
    pass(Pending.LONGEST_PAUSE);
    Task a = take();
    pending.add("p3", List.of());
    pending.done(a, List.of(B));
    assertEquals(0, pending.leftBehind());
    assertEquals(Optional.of("p2"), pending.done());
  }

  @Test
  void whatFailsCountsWhenMoreIsToBeRead() throws Exception {
    pending.add("p1", List.of(A));
    pending.failed(take());
    FutureTask<Void> reads =
        new FutureTask<>(
            () -> {
              pending.awaitLessThan(1);
              return null;
            });
    Thread reader = new Thread(reads);
    reader.start();
    awaitState(reader, Thread.State.TIMED_WAITING);
    assertFalse(reads.isDone());
    pass(Pending.FIRST_PAUSE);
    pending.done(take(), List.of());
    reads.get();
  }

  @Test
  void afterAResetNoEarlierPlaceIsSaved() throws InterruptedException {
    pending.add("p1", List.of());
    pending.add("p2", List.of(A));
    Task a = take();
    assertEquals(Optional.of("p1"), pending.done());
    pending.restart("q1", List.of(B));
    assertEquals(Optional.empty(), pending.done());
    pending.done(a, List.of());
    assertEquals(Optional.empty(), pending.done());
    pending.done(take(), List.of());
    assertEquals(Optional.of("q1"), pending.done());
  }

  @Test
  void whatIsPostponedHoldsThePlaceAndIsDoneLater() throws InterruptedException {
    Action directory = new DirectoryMoved("/elsewhere");
    pending.add("p1", List.of());
    pending.add("p2", List.of(directory));
    pending.done(take(), List.of(new Postponed(directory, Duration.ofSeconds(60))));
    pending.add("p3", List.of(A));
    assertEquals(List.of(A), doAll());
    pass(Duration.ofSeconds(59));
    assertEquals(List.of(), doAll());
    assertEquals(Optional.of("p1"), pending.done());
    pass(Duration.ofSeconds(1));
    assertEquals(List.of(directory), doAll());
    assertEquals(Optional.of("p3"), pending.done());
  }

  @Test
  void whatIsPostponedGoesAtOnceIfItIsAskedForAgain() throws InterruptedException {
    Action directory = new DirectoryMoved("/elsewhere");
    pending.add("p1", List.of(directory));
    Task task = take();
    pending.add("p2", List.of(directory)); // meanwhile
    pending.done(task, List.of(new Postponed(directory, Duration.ofSeconds(60))));
    assertEquals(List.of(directory), doAll());
    assertEquals(Optional.of("p2"), pending.done());
  }

  @Test
  void whatIsPostponedAndAskedForAgainIsDoneOnce() throws InterruptedException {
    Action directory = new DirectoryMoved("/elsewhere");
    pending.add("p1", List.of(directory));
    pending.done(take(), List.of(new Postponed(directory, Duration.ofSeconds(60))));
    pending.add("p2", List.of(directory));
    assertEquals(List.of(directory), doAll());
    assertEquals(Optional.of("p2"), pending.done());
    pass(Duration.ofSeconds(60));
    assertEquals(List.of(), doAll());
  }

  @Test
  void howFarBehindIsTheOldestThatIsNotDone() throws InterruptedException {
    assertEquals(Duration.ZERO, pending.behind());
    pending.add("p1", List.of(A));
    pass(Duration.ofSeconds(3));
    pending.add("p2", List.of());
    pass(Duration.ofSeconds(1));
    assertEquals(Duration.ofSeconds(4), pending.behind());
    pending.done(take(), List.of());
    assertEquals(Duration.ZERO, pending.behind());
    assertFalse(pending.size() > 0);
  }
}
