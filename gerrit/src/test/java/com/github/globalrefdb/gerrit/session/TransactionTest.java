package com.github.globalrefdb.gerrit.session;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.globalrefdb.gerrit.session.RefusedException.Kind;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.Test;

class TransactionTest {
  private static final RefusedException NO = new RefusedException(Kind.RETRY, "locked", List.of("refs/heads/a is locked"));

  private final AtomicLong clock = new AtomicLong();

  private Transaction transaction(int millis) {
    return transaction(clock::get, millis);
  }

  private static Transaction transaction(LongSupplier clock, int millis) {
    return new Transaction(
        clock, Transaction.Subject.MOVES, "1", "/srv/git/a.git", List.of(new Move("0", "1", "refs/heads/a")), Duration.ofMillis(millis));
  }

  private void pass(Duration time) {
    clock.addAndGet(time.toNanos());
  }

  @Test
  void oneOfManyDecides() throws Exception {
    int threads = 8;
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    for (int round = 0; round < 2000; round++) {
      Transaction transaction = transaction(60_000);
      CyclicBarrier start = new CyclicBarrier(threads);
      List<Future<Boolean>> won = new ArrayList<>();
      for (int i = 0; i < threads; i++) {
        Callable<Boolean> decision = i % 2 == 0 ? transaction::take : () -> transaction.deny(NO);
        won.add(
            pool.submit(
                () -> {
                  start.await();
                  return decision.call();
                }));
      }
      int winner = -1;
      for (int i = 0; i < threads; i++) {
        if (won.get(i).get()) {
          assertEquals(-1, winner, "two have decided");
          winner = i;
        }
      }
      assertEquals(winner % 2 == 0, transaction.isTaken());
      if (winner % 2 == 0) {
        transaction.awaitOk();
      } else {
        assertThrows(RefusedException.class, transaction::awaitOk);
      }
    }
    pool.shutdown();
  }

  @Test
  void anOkOrATimeoutButNeverBoth() throws Exception {
    ExecutorService pool = Executors.newSingleThreadExecutor();
    for (int round = 0; round < 300; round++) {
      Transaction transaction = transaction(1);
      pass(Duration.ofMillis(1));
      CyclicBarrier start = new CyclicBarrier(2);
      Future<Boolean> ok =
          pool.submit(
              () -> {
                start.await();
                return transaction.take();
              });
      start.await();
      boolean allowed = isAllowed(transaction);
      assertEquals(allowed, ok.get());
    }
    pool.shutdown();

    Transaction taken = transaction(1);
    assertTrue(taken.take());
    pass(Duration.ofMillis(1));
    assertTrue(isAllowed(taken));

    Transaction late = transaction(1);
    pass(Duration.ofMillis(1));
    assertFalse(isAllowed(late));
    assertFalse(late.take());
  }

  /** Waits for the answer, or until the limit is over. */
  private static boolean isAllowed(Transaction transaction) {
    try {
      transaction.awaitOk();
      return true;
    } catch (RefusedException e) {
      assertEquals("timeout", e.reason());
      return false;
    }
  }

  @Test
  void waitExtendsTheLimit() throws Exception {
    Semaphore looks = new Semaphore(0); // at the clock
    AtomicReference<Thread> waits = new AtomicReference<>();
    LongSupplier watched =
        () -> {
          if (Thread.currentThread() == waits.get()) {
            looks.release();
          }
          return clock.get();
        };
    Transaction transaction = transaction(watched, 10);
    FutureTask<Boolean> allowed = new FutureTask<>(() -> isAllowed(transaction));
    waits.set(new Thread(allowed));
    waits.get().start();
    for (int i = 0; i < 8; i++) {
      pass(Duration.ofMillis(9));
      transaction.extend();
      looks.drainPermits();
      while (!looks.tryAcquire(4, 10, MILLISECONDS)) { // until it has compared this time with the limit, and waits on
        assertFalse(allowed.isDone(), "it has given up");
      }
    }
    assertTrue(transaction.take());
    assertTrue(allowed.get());
  }

  @Test
  void anOkThatIsTooOldIsNone() throws Exception {
    Duration tooOld = Transaction.OK_LASTS.plusNanos(1);
    Transaction late = transaction(60_000);
    pass(tooOld);
    assertFalse(late.take());
    assertFalse(late.isTaken());
    assertEquals("timeout", assertThrows(RefusedException.class, late::awaitOk).reason());

    Transaction slow = transaction(60_000);
    assertTrue(slow.take());
    pass(tooOld); // the thread was stopped meanwhile
    assertThrows(RefusedException.class, slow::awaitOk);
    assertTrue(slow.isTaken()); // so it is reported

    Transaction extended = transaction(60_000);
    pass(Transaction.OK_LASTS);
    extended.extend();
    pass(Transaction.OK_LASTS);
    assertTrue(extended.take());
    extended.awaitOk();
  }

  @Test
  void anInterruptedThreadWaitsAllTheSame() throws Exception {
    Transaction transaction = transaction(600_000);
    Thread waits = Thread.currentThread();
    CountDownLatch allowed = new CountDownLatch(1);
    Thread daemon =
        new Thread(
            () -> {
              try {
                awaitBlocked(waits);
                transaction.take();
                allowed.await();
                awaitBlocked(waits);
                transaction.settle(Map.of("refs/heads/a", "1"));
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
    waits.interrupt();
    daemon.start();
    transaction.awaitOk();
    assertTrue(waits.isInterrupted());
    allowed.countDown();
    assertEquals(Optional.of(Map.of("refs/heads/a", "1")), transaction.awaitSettled(Duration.ofMinutes(10)));
    assertTrue(Thread.interrupted());
    daemon.join();
  }

  private static void awaitBlocked(Thread thread) {
    while (thread.getState() != Thread.State.TIMED_WAITING) {
      Thread.yield();
    }
  }

  @Test
  void aSettlementWithoutValuesIsNone() {
    Transaction transaction = transaction(1000);
    transaction.settle(Map.of());
    assertFalse(transaction.awaitSettled(Duration.ofMinutes(10)).isPresent());
  }
}
