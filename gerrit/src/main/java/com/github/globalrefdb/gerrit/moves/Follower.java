package com.github.globalrefdb.gerrit.moves;

import static java.util.concurrent.TimeUnit.MINUTES;
import static java.util.concurrent.TimeUnit.SECONDS;

import com.github.globalrefdb.gerrit.moves.Action.EverythingMoved;
import com.github.globalrefdb.gerrit.session.MoveList;
import com.github.globalrefdb.gerrit.session.MovesAnswer;
import com.github.globalrefdb.gerrit.session.MovesAnswer.Moves;
import com.github.globalrefdb.gerrit.session.MovesAnswer.Reset;
import com.github.globalrefdb.gerrit.session.RejectedException;
import com.google.common.flogger.FluentLogger;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;

/**
 * Reads the daemon's list of moves from the saved place on, and passes the actions on. It continues to read while they
 * are executed, and saves a place when everything before it is done. It reconnects whenever the connection ends;
 * nothing waits for it.
 */
final class Follower {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();
  private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(5);

  /** The limit of pending actions, which bounds memory. The daemon's list has the rest. */
  private static final int MOST_DUE = 20_000;

  /** The daemon answers at shorter intervals than this. */
  private static final Duration SILENT_AFTER = Duration.ofSeconds(20);

  /** The interval for saving an unchanged place: its time matters, too, when the next start goes back. */
  private static final long SAVE_AGAIN_MS = 60_000;

  private final Path socket;
  private final String guard;
  private final Classifier classifier;
  private final Optional<PlaceFile> file;
  private final ComparisonFile comparison;
  private final Pending pending;
  private final Progress progress;
  private final ComparedCount count;
  private final LongSupplier clock;
  private final Thread thread = new Thread(this::run, "refdb-moves");
  private MoveList list; // guarded by this
  private boolean stopping; // guarded by this
  private volatile long answered;

  // Used by the thread alone.
  private Optional<String> place = Optional.empty();
  private boolean started;
  private Optional<String> savedPlace = Optional.empty();
  private long savedAt;
  private boolean forgotten; // the file does not exist
  private String trouble = "";
  private Optional<Long> comparing = Optional.empty(); // since

  /**
   * @param file empty if no place is to be saved, so that each start compares everything
   * @param clock like {@link System#nanoTime}
   */
  Follower(
      Path socket,
      String guard,
      Classifier classifier,
      Optional<PlaceFile> file,
      ComparisonFile comparison,
      Pending pending,
      Progress progress,
      ComparedCount count,
      LongSupplier clock) {
    this.socket = socket;
    this.guard = guard;
    this.classifier = classifier;
    this.file = file;
    this.comparison = comparison;
    this.pending = pending;
    this.progress = progress;
    this.count = count;
    this.clock = clock;
    this.answered = clock.getAsLong();
    thread.setDaemon(true);
  }

  void start() {
    thread.start();
  }

  private void run() {
    load();
    Duration pause = FIRST_PAUSE;
    while (true) {
      long before = answered;
      try (MoveList opened = open()) {
        read(opened);
      } catch (InterruptedException e) {
        return;
      } catch (Throwable e) { // without this thread nothing would be followed
        if (isStopping()) {
          return;
        }
        report(e);
      }
      pause = answered != before ? FIRST_PAUSE : pause;
      if (!sleep(pause)) {
        return;
      }
      pause = pause.multipliedBy(2).compareTo(LONGEST_PAUSE) < 0 ? pause.multipliedBy(2) : LONGEST_PAUSE;
    }
  }

  private void load() {
    if (file.isEmpty()) {
      return;
    }
    try {
      place = file.get().load();
    } catch (IOException e) {
      logger.atWarning().withCause(e).log("refdb: the place in the list of moves can't be read: everything is compared");
    }
  }

  private MoveList open() throws IOException {
    MoveList opened = MoveList.open(socket, guard, clock);
    synchronized (this) {
      list = opened;
      if (stopping) {
        opened.cutOff();
      }
    }
    return opened;
  }

  /** Reads until the connection ends. */
  private void read(MoveList opened) throws IOException, InterruptedException {
    while (true) {
      MovesAnswer answer = opened.after(place);
      answered = clock.getAsLong();
      if (!trouble.isEmpty()) {
        logger.atInfo().log("refdb: indexes and caches follow the list of moves again");
        trouble = "";
      }
      take(answer);
      compareIfAsked();
      logComparison();
      save();
      pending.awaitLessThan(MOST_DUE);
    }
  }

  private void take(MovesAnswer answer) {
    if (answer instanceof Moves moves && place.isPresent()) {
      Set<Action> actions = classifier.actions(moves.moves());
      if (!actions.isEmpty() || !place.get().equals(moves.place())) {
        pending.add(moves.place(), actions);
      }
      if (!started) {
        logger.atInfo().log("refdb: indexes and caches follow the list of moves from the saved place on");
      }
    } else {
      String why = answer instanceof Reset ? "the list of moves does not reach back to the saved place" : "no place was saved that is sure";
      compareEverything(answer.place(), why);
    }
    started = true;
    place = Optional.of(answer.place());
  }

  private void compareIfAsked() {
    try {
      if (comparison.asked()) {
        compareEverything(place.get(), "an operator has asked for it");
      }
    } catch (IOException e) {
      logger.atWarning().atMostEvery(1, MINUTES).withCause(e).log("refdb: whether a comparison was asked for can't be found out");
    }
  }

  /** Pending actions stay pending, and go first. */
  private void compareEverything(String from, String why) {
    logger.atInfo().log("refdb: everything is compared in the background: %s", why);
    forget();
    progress.reset();
    count.clear();
    comparing = Optional.of(clock.getAsLong());
    tell(() -> comparison.began(System.currentTimeMillis() / 1000));
    pending.restart(from, List.of(new EverythingMoved()));
  }

  /** Failures to write the operators' files are ignored. */
  private void tell(Telling telling) {
    try {
      telling.tell();
    } catch (IOException e) {
      logger.atWarning().withCause(e).log("refdb: the state of the comparison can't be saved");
    }
  }

  private interface Telling {
    void tell() throws IOException;
  }

  private void logComparison() {
    if (comparing.isEmpty()) {
      return;
    }
    long seconds = (clock.getAsLong() - comparing.get()) / 1_000_000_000;
    if (pending.done().isPresent()) {
      logger.atInfo().log("refdb: everything was compared, in %d s: %s", seconds, count);
      comparing = Optional.empty();
      tell(() -> comparison.ended(System.currentTimeMillis() / 1000, count));
    } else {
      logger.atInfo().atMostEvery(30, SECONDS).log(
          "refdb: comparing everything, since %d s: %s; %d steps to go", seconds, count, pending.size());
    }
  }

  private void save() {
    if (file.isEmpty()) {
      return;
    }
    if (pending.leftBehind() > 0) {
      if (savedPlace.isPresent() || !forgotten) {
        forget();
      }
      return;
    }
    Optional<String> done = pending.done();
    long now = clock.getAsLong() / 1_000_000;
    boolean isNew = !done.equals(savedPlace);
    if (done.isEmpty() || !isNew && now - savedAt < SAVE_AGAIN_MS) {
      return;
    }
    try {
      file.get().save(done.get(), now);
      savedPlace = done;
      savedAt = now;
      forgotten = false;
    } catch (IOException e) { // the next start goes back further
      logger.atWarning().atMostEvery(1, MINUTES).withCause(e).log("refdb: the place in the list of moves can't be saved");
    }
  }

  private void forget() {
    savedPlace = Optional.empty();
    if (file.isEmpty()) {
      return;
    }
    try {
      file.get().forget();
      forgotten = true;
    } catch (IOException e) { // the daemon does not know the place after the next start either
      logger.atWarning().withCause(e).log("refdb: the place in the list of moves can't be removed");
    }
  }

  private void report(Throwable e) {
    boolean passes = e instanceof RejectedException rejected && rejected.passes();
    String message = e instanceof IOException && e.getMessage() != null ? e.getMessage() : e.toString();
    if (!passes && !message.equals(trouble)) {
      logger.atWarning().log("refdb: indexes and caches do not follow the list of moves: %s", message);
    }
    trouble = message;
  }

  private boolean sleep(Duration pause) {
    try {
      synchronized (this) {
        if (!stopping) {
          wait(pause.toMillis());
        }
        return !stopping;
      }
    } catch (InterruptedException e) {
      return false;
    }
  }

  /**
   * How far indexes and caches are behind the list: the time since the oldest missing move became known, or since
   * nothing could be read.
   */
  Duration behind() {
    Duration silence = Duration.ofNanos(clock.getAsLong() - answered);
    Duration behind = pending.behind();
    return silence.compareTo(SILENT_AFTER) > 0 && silence.compareTo(behind) > 0 ? silence : behind;
  }

  private synchronized boolean isStopping() {
    return stopping;
  }

  /** Stops reading; actions already read stay pending. */
  void stop() throws InterruptedException {
    synchronized (this) {
      stopping = true;
      if (list != null) {
        list.cutOff();
      }
      notifyAll();
    }
    thread.join();
  }
}
