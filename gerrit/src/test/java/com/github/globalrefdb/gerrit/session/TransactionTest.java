package com.github.globalrefdb.gerrit.session;

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
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

class TransactionTest {
  private static final RefusedException NO = new RefusedException(Kind.RETRY, "locked", List.of("refs/heads/a is locked"));

  private static Transaction transaction(int millis) {
    return new Transaction("1", "/srv/git/a.git", List.of(new Move("0", "1", "refs/heads/a")), Duration.ofMillis(millis));
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
    int taken = 0;
    for (int round = 0; round < 300; round++) {
      Transaction transaction = transaction(1);
      Future<Boolean> ok = pool.submit(transaction::take);
      boolean moves = true;
      try {
        transaction.awaitOk();
      } catch (RefusedException e) {
        assertEquals("timeout", e.reason());
        moves = false;
      }
      assertEquals(moves, ok.get());
      taken += moves ? 1 : 0;
    }
    assertTrue(taken > 0);
    pool.shutdown();
  }

  @Test
  void waitExtendsTheLimit() throws Exception {
    Transaction transaction = transaction(1500);
    Thread daemon =
        new Thread(
            () -> {
              for (int i = 0; i < 8; i++) {
                sleep(200);
                transaction.extend();
              }
              transaction.take();
            });
    daemon.start();
    transaction.awaitOk();
    daemon.join();
    assertTrue(transaction.isTaken());
  }

  @Test
  void anOkThatIsTooOldIsNone() throws Exception {
    long before = System.nanoTime() - Transaction.OK_LASTS.toNanos();
    Transaction late = transaction(60_000);
    late.extend(before);
    assertFalse(late.take());
    assertFalse(late.isTaken());
    assertEquals("timeout", assertThrows(RefusedException.class, late::awaitOk).reason());

    Transaction slow = transaction(60_000);
    assertTrue(slow.take());
    slow.extend(before); // as if the thread had been stopped since
    assertThrows(RefusedException.class, slow::awaitOk);
    assertTrue(slow.isTaken()); // so it is reported
  }

  @Test
  void anInterruptedThreadWaitsAllTheSame() throws Exception {
    Transaction transaction = transaction(60_000);
    Thread daemon =
        new Thread(
            () -> {
              sleep(50);
              transaction.take();
              sleep(50);
              transaction.settle(Map.of("refs/heads/a", "1"));
            });
    Thread.currentThread().interrupt();
    daemon.start();
    transaction.awaitOk();
    assertTrue(Thread.currentThread().isInterrupted());
    assertEquals(Optional.of(Map.of("refs/heads/a", "1")), transaction.awaitSettled(Duration.ofSeconds(60)));
    assertTrue(Thread.interrupted());
    daemon.join();
  }

  @Test
  void aSettlementWithoutValuesIsNone() {
    Transaction transaction = transaction(1000);
    transaction.settle(Map.of());
    assertFalse(transaction.awaitSettled(Duration.ofSeconds(60)).isPresent());
  }

  private static void sleep(int millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
