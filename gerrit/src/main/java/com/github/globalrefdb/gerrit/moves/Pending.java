package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.Postponed;
import com.github.globalrefdb.gerrit.moves.Action.Urgency;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.LongSupplier;

/**
 * The pending actions, and the place up to which all actions are done. A waiting action is executed once, however often
 * it is requested. Equal actions never run concurrently, because the one that read first might write last.
 *
 * <p>A failed action is retried with back-off for the lifetime of this process. It holds the place back for at most
 * {@link #HOLDS}, because a place that never advances would make each start repeat more and more of the list. After
 * that the action is left behind: as long as any action is, no place may be saved, and the next start compares
 * everything.
 */
final class Pending {
  static final Duration FIRST_PAUSE = Duration.ofSeconds(1);
  static final Duration LONGEST_PAUSE = Duration.ofMinutes(5);

  /** How long a failing action holds the place back. */
  static final Duration HOLDS = Duration.ofMinutes(10);

  private static final long HELD_BY_NONE = Long.MAX_VALUE;

  private final LongSupplier clock;
  private final Map<Urgency, Map<Action, Task>> due = new EnumMap<>(Urgency.class);
  private final Map<Action, Task> paused = new HashMap<>();
  private final Set<Action> running = new HashSet<>();
  private final Deque<Answer> answers = new ArrayDeque<>(); // answers with pending actions
  private final TreeMap<Long, Integer> holds = new TreeMap<>(); // how many tasks hold back which answer
  private long last; // answer
  private Optional<String> done = Optional.empty();
  private int leftBehind; // tasks
  private boolean closed;

  /** An answer of the daemon, and its time. */
  private record Answer(long number, String place, long time) {}

  /** An action and its state. */
  static final class Task {
    private final Action action;
    private long answer; // the answer that the task holds back, or HELD_BY_NONE
    private long failedFirst;
    private int failures;
    private boolean leftBehind;
    private long due;

    private Task(Action action, long answer) {
      this.action = action;
      this.answer = answer;
    }

    Action action() {
      return action;
    }

    int failures() {
      return failures;
    }

    /** Whether the place advances without this task. */
    boolean isLeftBehind() {
      return leftBehind;
    }
  }

  /**
   * @param clock like {@link System#nanoTime}
   */
  Pending(LongSupplier clock) {
    this.clock = clock;
    for (Urgency urgency : Urgency.values()) {
      due.put(urgency, new LinkedHashMap<>());
    }
  }

  /** Adds the daemon's next answer: once these actions are done, everything before {@code place} is. */
  synchronized void add(String place, Collection<Action> actions) {
    answers.add(new Answer(++last, place, clock.getAsLong()));
    actions.forEach(action -> add(action, last));
    notifyAll();
  }

  /** Adds an action that holds no place back. */
  synchronized void later(CheckAgain action) {
    add(action, HELD_BY_NONE);
    notifyAll();
  }

  /** Like {@link #add}, but invalidates earlier places. */
  synchronized void restart(String place, Collection<Action> actions) {
    answers.clear();
    done = Optional.empty();
    add(place, actions);
  }

  private void add(Action action, long answer) {
    if (action instanceof CheckAgain check) { // a start after a crash repeats this anyway
      Task later = new Task(action, HELD_BY_NONE);
      later.due = clock.getAsLong() + check.after().toNanos();
      paused.put(action, later);
      return;
    }
    if (action instanceof Postponed postponed && !due.get(action.urgency()).containsKey(postponed.action())) {
      postpone(postponed, answer);
      return;
    }
    if (action instanceof Postponed postponed) { // it was requested again meanwhile
      add(postponed.action(), answer);
      return;
    }
    Task task = paused.remove(action); // it was requested again: run it now
    if (task == null) {
      task = due.get(action.urgency()).remove(action);
    }
    if (task == null) {
      task = new Task(action, HELD_BY_NONE);
    }
    if (setLeftBehind(task, false)) {
      task.failures = 0;
    }
    long earlier = Math.min(task.answer, answer);
    release(task);
    hold(task, earlier);
    due.get(action.urgency()).put(action, task);
  }

  private void postpone(Postponed postponed, long answer) {
    Task task = paused.remove(postponed.action());
    if (task == null) {
      task = new Task(postponed.action(), HELD_BY_NONE);
    }
    long earlier = Math.min(task.answer, answer);
    release(task);
    hold(task, earlier);
    task.due = clock.getAsLong() + postponed.after().toNanos();
    paused.put(task.action, task);
  }

  /** Whether the action was new. */
  private boolean setLeftBehind(Task task, boolean isLeftBehind) {
    boolean changed = task.leftBehind != isLeftBehind;
    task.leftBehind = isLeftBehind;
    if (changed) {
      leftBehind += isLeftBehind ? 1 : -1;
    }
    return changed;
  }

  private void hold(Task task, long answer) {
    task.answer = answer;
    if (answer != HELD_BY_NONE) {
      holds.merge(answer, 1, Integer::sum);
    }
  }

  private void release(Task task) {
    if (task.answer != HELD_BY_NONE) {
      holds.computeIfPresent(task.answer, (answer, n) -> n == 1 ? null : n - 1);
      task.answer = HELD_BY_NONE;
    }
  }

  /**
   * Waits for a task that may run now. {@link #done} or {@link #failed} must follow.
   *
   * @param least the lowest urgency to return
   * @return empty when this is closed
   */
  synchronized Optional<Task> take(Urgency least) throws InterruptedException {
    while (!closed) {
      resume();
      for (Urgency urgency : due.keySet()) {
        if (urgency.compareTo(least) > 0) {
          break;
        }
        for (Task task : due.get(urgency).values()) {
          if (running.add(task.action)) {
            due.get(urgency).remove(task.action);
            return Optional.of(task);
          }
        }
      }
      wait(paused.isEmpty() ? 0 : 200);
    }
    return Optional.empty();
  }

  private void resume() {
    long now = clock.getAsLong();
    List<Task> over = paused.values().stream().filter(task -> task.due - now <= 0).toList();
    for (Task task : over) {
      paused.remove(task.action);
      due.get(task.action.urgency()).put(task.action, task);
    }
  }

  /** Marks the task as done once {@code consequences} are. */
  synchronized void done(Task task, Collection<Action> consequences) {
    running.remove(task.action);
    long answer = setLeftBehind(task, false) ? last : task.answer; // the task is no longer left behind
    consequences.forEach(action -> add(action, answer));
    release(task);
    notifyAll();
  }

  /** Retries the task after a pause. */
  synchronized void failed(Task task) {
    running.remove(task.action);
    long now = clock.getAsLong();
    if (task.failures++ == 0) {
      task.failedFirst = now;
    }
    if (task.answer != HELD_BY_NONE && now - task.failedFirst >= HOLDS.toNanos()) {
      release(task);
      setLeftBehind(task, true);
    }
    Task again = due.get(task.action.urgency()).get(task.action);
    if (again != null) { // it was requested again meanwhile
      again.failures = task.failures;
      again.failedFirst = task.failedFirst;
      setLeftBehind(task, false);
      add(task.action, task.answer);
      release(task);
    } else {
      task.due = now + pause(task.failures).toNanos();
      paused.put(task.action, task);
    }
    notifyAll();
  }

  private static Duration pause(int failures) {
    Duration pause = FIRST_PAUSE.multipliedBy(1L << Math.min(failures - 1, 20));
    return pause.compareTo(LONGEST_PAUSE) < 0 ? pause : LONGEST_PAUSE;
  }

  /** The last place before which everything is done; empty if there is none. */
  synchronized Optional<String> done() {
    long held = holds.isEmpty() ? HELD_BY_NONE : holds.firstKey();
    while (!answers.isEmpty() && answers.peekFirst().number() < held) {
      done = Optional.of(answers.removeFirst().place());
    }
    return done;
  }

  /** The number of actions that wait, pause or run. */
  synchronized int size() {
    return due.values().stream().mapToInt(Map::size).sum() + paused.size() + running.size();
  }

  /** Waits until fewer than {@code limit} actions are due or have failed, or this is closed. */
  synchronized void awaitLessThan(int limit) throws InterruptedException {
    while (!closed && due.values().stream().mapToInt(Map::size).sum() + failing() >= limit) {
      wait(200);
    }
  }

  /** How long the oldest answer that is not done has been known. */
  synchronized Duration behind() {
    done();
    return answers.isEmpty() ? Duration.ZERO : Duration.ofNanos(clock.getAsLong() - answers.peekFirst().time());
  }

  /** The number of failing actions that no longer hold the place back. */
  synchronized int leftBehind() {
    return leftBehind;
  }

  private int failing() {
    return (int) paused.values().stream().filter(task -> task.failures > 0).count();
  }

  synchronized void close() {
    closed = true;
    notifyAll();
  }
}
